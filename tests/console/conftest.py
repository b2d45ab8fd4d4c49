"""One gateway with real sandboxes and 10,000 records for all tests of the console, and a page of a real browser each."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import plain_http
from tests.console.browser import CHROMIUM, chromium
from tests.console.pages import OpenPage, pages
from tests.console.records import write_records
from tests.leaks import no_leaks
from tests.stack import Stack
from tests.waiting import wait_until

API = "/api/v1"
RECORDS = 10_000
USER = "key-of-a-user"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.console)
            if not CHROMIUM.exists():
                item.add_marker(pytest.mark.skip(reason="needs Chromium: `make test-console` installs it"))
            if os.geteuid() != 0:
                item.add_marker(pytest.mark.skip(reason="needs root: real namespaces and cgroups"))


@dataclass
class Console:
    """The gateway, a client with its operator's key, and the sandboxes that all tests share."""

    url: str
    key: str
    pid: int
    client: httpx.Client
    registry: str  # one that never answers
    running: dict[str, Any] = field(default_factory=dict)

    def create(self, **fields: Any) -> dict[str, Any]:
        answer = self.client.post(f"{API}/sandbox", json={"docker_image": "host", **fields})
        assert answer.status_code == 201, answer.text
        return answer.json()

    def run(self, sandbox_id: str, command: str) -> dict[str, Any]:
        answer = self.client.post(f"/sbx/{sandbox_id}/exec", json={"command": command, "timeout": 20})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def delete(self, sandbox_id: str) -> None:
        self.client.delete(f"{API}/sandbox/{sandbox_id}").raise_for_status()


@pytest.fixture(scope="session")
def silent_registry() -> Iterator[str]:
    """A registry that accepts connections and says nothing: creates of its images wait."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture(scope="session")
def console(silent_registry: str) -> Iterator[Console]:
    options = ("--pool", "warm=2", "--record-limit", "20000", "--api-keys", f"{USER}:user")
    with tempfile.TemporaryDirectory(prefix="sandlot-") as directory, no_leaks(marker=directory):
        state_dir = Path(directory) / "state"
        write_records(state_dir, RECORDS)
        with Stack(state_dir, options=(*options, "--registries", f"{silent_registry},docker.io")) as stack:
            headers = {"Authorization": f"Bearer {stack.api_key}"}
            with plain_http.client(base_url=stack.url, headers=headers, timeout=60) as client:
                assert stack.process is not None
                pid = stack.process.pid
                console = Console(stack.url, stack.api_key, pid, client, silent_registry)
                console.running = console.create(
                    name="agent-1",
                    run="demo",
                    labels=["grpo"],
                    start_command="echo ready to serve; exec sleep 1000",
                    environment_vars={"STAGE": "train"},
                )
                console.run(console.running["id"], "echo 42; echo careful >&2")
                yield console
                console.delete(console.running["id"])  # or the gateway's end waits for its start command


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


def sooner(page: Any, seen: Callable[[], object]) -> None:
    """Let the page's time pass quickly, from refresh to refresh, until it shows what is expected."""
    wait_until(lambda: page.clock.fast_forward(5000) or seen())


@pytest.fixture
def open_page(browser: Any, console: Console) -> Iterator[OpenPage]:
    """Opens a page of the console, see `Pages.open`; the test fails if a script or policy of it does."""
    with pages(browser, console.url, key=console.key) as made:
        yield made.open
    assert made.complaints == []
