"""The process that deletes an adapter's sandboxes after its process's end: when, at which server, and with what it knows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from sandlot import Client, Sandbox

from tests.sdk.service.faults import Fault
from tests.sdk.service.server import Service
from tests.stack import private_stack
from tests.waiting import wait_until, wait_until_empty

pytestmark = pytest.mark.timeout(300)

PROGRAM = """
import json, os, signal, sys
from sandlot import Client, Sandbox
from sandlot.integrations import _orphans

clients = [Client(url=url, api_key=key) for url, key in json.loads(os.environ.pop("SERVERS"))]

def watch(number=0):
    box = Sandbox.create(client=clients[number])
    _orphans.watch(box)
    return box.id

def fork():
    return os.fork() or signal.pause()

for line in sys.stdin:
    print(json.dumps(eval(line)), flush=True)
"""
SECRET = "of-the-process-alone"


class Parent:
    """A process that creates sandboxes and has them watched. It knows servers only from its clients."""

    def __init__(self, *servers: tuple[str, str]) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SANDLOT_")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            env={**kept, "SERVERS": json.dumps(servers), "OTHER_KEY": SECRET},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ask(self, expression: str) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(expression, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        assert answer, self.process.communicate()[1]
        return json.loads(answer)

    def watcher(self) -> int:
        pid = self.process.pid
        (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(child)

    def end(self, how: str = "exits") -> str:
        """End it; return what it wrote to standard error."""
        if how == "killed":
            self.process.kill()
        return self.process.communicate()[1]


Start = Callable[..., Parent]


@pytest.fixture
def start() -> Iterator[Start]:
    with ExitStack() as ends:

        def started(*servers: tuple[str, str]) -> Parent:
            parent = Parent(*servers)
            ends.callback(parent.end, "killed")
            return parent

        yield started


def at(service: Service) -> tuple[str, str]:
    return service.url, service.api_key


def living(service: Service) -> list[str]:
    return [name for name, box in service.sandboxes.items() if box["status"] != "TERMINATED"]


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("how", ["exits", "killed"])
def test_what_is_not_released_is_deleted_at_the_end(service: Service, start: Start, how: str) -> None:
    parent = start(at(service))
    first, second = parent.ask("watch()"), parent.ask("watch()")
    watcher = parent.watcher()
    parent.ask(f"_orphans.release({second!r})")
    assert living(service) == [first, second]
    parent.end(how)
    wait_until(lambda: living(service) == [second])
    wait_until(lambda: gone(watcher))
    assert living(service) == [second]  # the release alone deletes nothing


def test_a_watcher_that_died_leaves_its_sandboxes_to_the_next(service: Service, start: Start) -> None:
    parent = start(at(service))
    parent.ask("watch()")
    first = parent.watcher()
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: gone(first))
    parent.ask("watch()")
    assert parent.watcher() != first
    assert "has died (exit code -9)" in parent.end()
    wait_until_empty(lambda: living(service))


def test_each_server_is_asked_for_its_own_and_again_after_any_error(
    service: Service, start: Start, tmp_path: Path
) -> None:
    root = tmp_path / "second"
    root.mkdir()
    with Service(root) as other:
        other.api_key = "another-key"
        parent = start(at(service), at(other))
        # Both servers count: the first ids of the second one are of sandboxes that nobody watches there.
        kept = parent.ask("[Sandbox.create(client=clients[1]).id for _ in range(2)]")
        for number in (0, 1, 0, 1):
            parent.ask(f"watch({number})")
        for each in (service, other):
            each.faults.append(Fault("/sandbox", status=200, body={"succeeded": 5}))  # no list
            each.faults.append(Fault("/sandbox", status=500))
        parent.end()
        wait_until(lambda: (living(service), living(other)) == ([], kept))


def test_secrets_go_by_the_pipe_alone(service: Service, start: Start) -> None:
    parent = start(at(service))
    parent.ask("watch()")
    home = Path(f"/proc/{parent.watcher()}")
    seen = wait_until((home / "cmdline").read_bytes) + (home / "environ").read_bytes()
    assert b"_orphans" in seen
    for secret in (SECRET, service.api_key):
        assert secret.encode() not in seen
    parent.end()
    wait_until_empty(lambda: living(service))  # else the watcher would wait for the server, which goes


def test_a_forked_child_that_lives_on_keeps_no_sandbox(service: Service, start: Start) -> None:
    parent = start(at(service))
    parent.ask("watch()")
    child = parent.ask("fork()")
    try:
        parent.process.kill()
        wait_until_empty(lambda: living(service))
        assert not gone(child)
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.root
def test_a_gateway_that_is_down_at_the_end_is_waited_for(start: Start) -> None:
    with private_stack() as stack, Client(url=stack.url, api_key=stack.api_key) as client:
        parent = start((stack.url, stack.api_key))
        parent.ask("watch()")
        watcher = parent.watcher()
        stack.kill()
        parent.end("killed")
        # Longer than a client asks a server that has never answered it.
        late = time.monotonic() + 5
        wait_until(lambda: gone(watcher) or time.monotonic() > late)
        stack.start()
        wait_until_empty(lambda: Sandbox.list(client=client), seconds=60)
        wait_until(lambda: gone(watcher))
