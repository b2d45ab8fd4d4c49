"""A sandbox whose egress policy is changed, and what its code reaches then."""

from __future__ import annotations

from typing import Any

import httpx

from tests import plain_http
from tests.policies import skip_without_egress_policies
from tests.prime_rpc.support import Box
from tests.probe import PROBE
from tests.stack import Stack
from tests.web import ASK

EVERYTHING = {"allowlist": None, "denylist": []}
NOTHING = {"allowlist": [], "denylist": None}
# Of an address that is nowhere: a connection that is read leads where its name is.
NOWHERE = "192.0.2.1"


class Sandbox:
    """A sandbox with its policy and what it reaches."""

    def __init__(self, stack: Stack, box: Box) -> None:
        self.id = box.sandbox_id
        self._stack = stack
        self.run("cat > /tmp/probe.py", stdin=PROBE)
        self.run("cat > /tmp/ask.py", stdin=ASK)

    def _request(self, method: str, path: str, **more: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self._stack.api_key}"}
        return plain_http.request(method, self._stack.url + path, headers=headers, timeout=60, **more)

    def run(self, command: str, *, stdin: str = "") -> str:
        body = {"command": command, "stdin": stdin}
        answer = self._request("POST", f"/sbx/{self.id}/exec", json=body)
        assert answer.status_code == 200, answer.text
        assert answer.json()["exit_code"] == 0, answer.text
        return answer.json()["stdout"]

    def reaches(self, *targets: str) -> list[str]:
        """What a new process sees of each `KIND HOST PORT`."""
        return self.run("python3 /tmp/probe.py", stdin="".join(f"{each}\n" for each in targets)).split()

    def asks(self, *questions: str) -> list[str]:
        """What a new process gets for each `http|tls ADDRESS NAME`."""
        return self.run("python3 /tmp/ask.py", stdin="".join(f"{each}\n" for each in questions)).split()

    def put(self, policy: dict[str, Any]) -> httpx.Response:
        return self._request("PUT", f"/api/v1/sandbox/{self.id}/egress-policy", json=policy)

    def set(self, *, allow: list[str] | None = None, deny: list[str] | None = None) -> int:
        """Its generation, once it is applied."""
        answer = self.put({"allowlist": allow, "denylist": deny})
        skip_without_egress_policies()
        told = answer.json()
        assert (answer.status_code, told["applied"]) == (200, True), answer.text
        assert told["applied_generation"] == told["generation"]
        return told["generation"]

    def policy(self) -> dict[str, Any]:
        return self._request("GET", f"/api/v1/sandbox/{self.id}/egress-policy").json()

    def post(self, path: str) -> httpx.Response:
        return self._request("POST", f"/api/v1/sandbox/{self.id}{path}")

    def delete(self) -> None:
        self._request("DELETE", f"/api/v1/sandbox/{self.id}")
