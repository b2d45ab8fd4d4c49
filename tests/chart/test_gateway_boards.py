"""A real Prometheus scrapes a gateway under load: its boards show data, and faults of it make alerts active."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from tests import plain_http
from tests.chart.boards import BOARDS, OF_PARTS, check_queries, scraped, until_active, watching
from tests.chart.prometheus import Target
from tests.chart.render import NAMESPACE, Resource
from tests.stack import private_stack

# What a Prometheus notices that scrapes nothing else.
OTHERS = ("SandlotNoController", "SandlotNoNodeAgent")


def test_each_board_is_of_a_part() -> None:
    assert {board for boards in OF_PARTS.values() for board in boards} == BOARDS.keys()


def test_its_boards_show_data_and_its_faults_are_noticed(everything: list[Resource], directory: Path) -> None:
    keys, audit = directory / "keys", directory / "audit"
    keys.write_text("another-key-of-the-test\n")
    limits = ("--pool", "warm=2", "--max-running", "1", "--max-queued", "1")
    files = ("--api-keys-file", str(keys), "--audit-log", str(audit))
    with private_stack(*limits, *files) as stack:
        target = Target("gateway", NAMESPACE, stack.port, stack.api_key)
        headers = {"Authorization": f"Bearer {stack.api_key}"}
        with (
            plain_http.client(base_url=stack.url, headers=headers, timeout=60) as client,
            watching(target, everything, directory) as server,
        ):
            # A counter that begins with its first event shows Prometheus only the later ones.
            for _ in range(2):
                use_sandboxes(client)
                scraped(server)
            check_queries(server, "gateway")
            full = "SandlotTurnsAway"
            until_active(server, full, *OTHERS)

            keys.write_text("a key:of a tenant:without a number\n")
            audit.unlink()
            audit.symlink_to("/dev/full")
            client.get("/api/v1/sandbox").raise_for_status()
            until_active(server, full, "SandlotReloadFails", "SandlotAuditLogFails", *OTHERS)

            stack.kill()
            down = ("SandlotNoGateway", "SandlotDoesNotAnswer")
            until_active(server, full, "SandlotAuditLogFails", *down, *OTHERS)


def use_sandboxes(client: httpx.Client) -> None:
    """A warm and a cold create, a command that takes too long, and more at once than a sandbox may queue."""
    warm, cold = create(client), create(client, cpu_cores=0.5)
    assert execute(client, warm, "sleep 9", timeout=0.1) == 408
    with ThreadPoolExecutor(4) as pool:
        codes = set(pool.map(lambda _: execute(client, warm, "sleep 1", timeout=20), range(4)))
    assert codes == {200, 503}
    for sandbox in (warm, cold):
        client.delete(f"/api/v1/sandbox/{sandbox}").raise_for_status()


def create(client: httpx.Client, **fields: Any) -> str:
    answer = client.post("/api/v1/sandbox", json={"docker_image": "host", **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


def execute(client: httpx.Client, sandbox: str, command: str, *, timeout: float) -> int:
    body = {"command": command, "timeout": timeout}
    return client.post(f"/sbx/{sandbox}/exec", json=body).status_code
