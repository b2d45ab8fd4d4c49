"""Work for a release: what callers and trainers do, and what they do too much or wrongly."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import httpx

from tests import plain_http
from tests.kubernetes.stack import IMAGE, Stack

MISSING = "sandlot.test/missing:dev"
POOLED = {"cpu_cores": 1, "memory_gb": 0.5, "disk_size_gb": 1}
COLD = {"cpu_cores": 0.5, "memory_gb": 0.25, "disk_size_gb": 1}
FORGE = """
import http.client, sys
for number in range(60):
    connection = http.client.HTTPConnection(sys.argv[1], 8641, timeout=10)
    headers = {"X-Sandlot-Instance": sys.argv[2], "X-Sandlot-Sender": "a guess"}
    connection.request("POST", "/internal/sidecar", b"{}", headers)
    assert connection.getresponse().status == 401
"""


class Callers:
    def __init__(self, client: httpx.Client) -> None:
        self.client = client

    def create(self, image: str = IMAGE, **fields: Any) -> httpx.Response:
        return self.client.post("/api/v1/sandbox", json={"docker_image": image, "wait_seconds": 20, **fields})

    def begin(self, **fields: Any) -> str:
        """The id of a sandbox that runs."""
        answer = self.create(**fields)
        assert answer.status_code == 201, answer.text
        found = answer.json()
        assert found["status"] == "RUNNING", found
        return found["id"]

    def execute(self, sandbox: str, command: str, *, timeout: float = 20) -> int:
        """The status of the answer, 0 of one that is cut."""
        body = {"command": command, "timeout": timeout}
        try:
            return self.client.post(f"/sbx/{sandbox}/exec", json=body).status_code
        except httpx.RemoteProtocolError:
            return 0

    def attempt(self, sandbox: str) -> None:
        """A command whose caller waits for a few seconds only."""
        with suppress(httpx.TimeoutException):
            body = {"command": "true", "timeout": 5}
            self.client.post(f"/sbx/{sandbox}/exec", json=body, timeout=4)

    def end(self, sandbox: str) -> None:
        self.client.delete(f"/api/v1/sandbox/{sandbox}").raise_for_status()

    def work(self) -> None:
        """Warm and cold sandboxes with commands that end well, queue, take too long, and are left by their caller."""
        warm, cold = self.begin(**POOLED), self.begin(**COLD)
        for sandbox in (warm, cold):
            for _ in range(10):
                assert self.execute(sandbox, "true") == 200
        with ThreadPoolExecutor(3) as threads:
            assert set(threads.map(lambda _: self.execute(warm, "sleep 0.3"), range(3))) == {200}
        assert self.execute(warm, "sleep 9", timeout=0.1) == 408
        with suppress(httpx.ReadTimeout):
            self.client.post(f"/sbx/{warm}/exec", json={"command": "sleep 2", "timeout": 9}, timeout=0.2)
        for sandbox in (warm, cold):
            self.end(sandbox)

    def too_much(self, sandbox: str) -> None:
        """More commands at once than a sandbox may queue."""
        with ThreadPoolExecutor(6) as threads:
            codes = set(threads.map(lambda _: self.execute(sandbox, "sleep 1"), range(6)))
        assert codes == {200, 503}


@contextmanager
def callers(stack: Stack, gateway: dict[str, Any] | None = None) -> Iterator[Callers]:
    """Callers of this gateway's pod, or of all by the Service."""
    headers = {"Authorization": f"Bearer {stack.api_key}"}
    url = stack.url if gateway is None else f"http://{gateway['status']['podIP']}:8642"
    with plain_http.client(base_url=url, headers=headers, timeout=60) as client:
        yield Callers(client)
