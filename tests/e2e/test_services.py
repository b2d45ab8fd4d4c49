"""Services of a group: sandboxes that reach each other by name, and nobody else does."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sandlot import Client, Sandbox, SandboxLost, Unhealthy
from sandlot._sync.groups import Group

from tests import services
from tests.e2e import processes
from tests.services import REFUSED, ask
from tests.sidecar.processes import descendants
from tests.stack import Stack
from tests.waiting import SECONDS, wait_until

OPTIONS: dict[str, Any] = {"image": "host", "network": "none", "memory": 256 << 20}
# Opens so many connections and keeps them; prints how many were closed at once.
MANY = """
import socket, sys
held = [socket.create_connection(("db", 5432), timeout=60) for _ in range(int(sys.argv[1]))]
closed = 0
for each in held:
    try:
        closed += each.recv(1) == b""
    except ConnectionError:
        closed += 1
print(closed)
"""


@pytest.fixture
def stack(empty_stack: Stack) -> Stack:
    return empty_stack


@pytest.fixture
def group(client: Client) -> Iterator[Group[Sandbox]]:
    with services.created(client, **OPTIONS) as group:
        yield group


# Says when it is connected, and when that was cut: in files, since a test may have no gateway to ask meanwhile.
HOLD = """
import socket
held = socket.create_connection(("db", 5432))
assert held.recv(3) == b"db:"
open("/open", "w").close()
try:
    held.recv(1)
except OSError:
    pass
open("/cut", "w").close()
"""


def hold(box: Sandbox) -> None:
    """Have a connection from this sandbox to db stay open until it is cut."""
    box.start(["python3", "-c", HOLD], detach=True)
    wait_for_file(box, "/open")


def wait_for_file(box: Sandbox, path: str) -> None:
    done = box.exec(f"until [ -e {path} ]; do sleep 0.05; done", timeout=SECONDS)
    assert done.exit_code == 0, done


def sidecar_of(stack: Stack, box: Sandbox) -> int:
    """The sidecar in whose sandbox a command of `box` runs."""
    box.start(["sleep", "600"], detach=True)

    def found() -> list[int]:
        return [
            sidecar
            for sidecar in processes.sidecars(stack)
            if any(box.id.encode() in environment(pid) for pid in descendants(sidecar))
        ]

    return wait_until(found)[0]


def environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # it has ended since
        return b""


def test_names_lead_to_services(group: Group[Sandbox]) -> None:
    services.check_that_names_lead_to_services(group)


def test_the_rest_is_refused(group: Group[Sandbox], client: Client) -> None:
    with Sandbox.create("host", network="none", client=client) as outsider:
        services.check_that_the_rest_is_refused(group, outsider)


def test_another_group_has_services_of_its_own(group: Group[Sandbox], client: Client) -> None:
    with services.created(client, tag="other", **OPTIONS) as other:
        assert ask(other[2], "db", 5432) == "other:hello\n"
        assert ask(group[2], "db", 5432) == "db:hello\n"
        group["db"].delete()
        assert ask(group[2], "db", 5432) in REFUSED
        assert ask(other[2], "db", 5432) == "other:hello\n"


@pytest.mark.parametrize("end", ["deleted", "sidecar killed"])
def test_links_end_with_the_service(group: Group[Sandbox], stack: Stack, end: str) -> None:
    agent, db = group[2], group["db"]
    hold(agent)
    if end == "deleted":
        db.delete()
    else:
        os.kill(sidecar_of(stack, db), signal.SIGKILL)
    wait_for_file(agent, "/cut")
    wait_until(lambda: ask(agent, "db", 5432) in REFUSED)
    assert ask(agent, "web", 8080) == "web:hello\n"


def test_a_killed_gateway_cuts_links_and_the_next_one_makes_others(
    group: Group[Sandbox], stack: Stack
) -> None:
    agent = group[2]
    hold(agent)
    stack.kill()
    stack.start()
    wait_for_file(agent, "/cut")
    assert ask(agent, "db", 5432) == "db:hello\n"
    assert ask(agent, "db", 5432, 1 << 20) == f"db {1 << 20} True\n"


def test_a_connection_of_a_sandbox_beyond_its_most_is_closed(group: Group[Sandbox]) -> None:
    agent = group[2]
    done = agent.exec(["python3", "-c", MANY, "300"], timeout=SECONDS)
    assert done.stdout == f"{300 - 256}\n", done
    assert ask(group["web"], "db", 5432) == "db:hello\n", "others have connections of their own"
    wait_until(lambda: ask(agent, "db", 5432) == "db:hello\n")


def test_a_replaced_init_has_its_services_again(group: Group[Sandbox], stack: Stack) -> None:
    """Its network is a new one."""
    agent = group[2]
    running = agent.start(["sleep", "600"])
    os.kill(processes.init(sidecar_of(stack, agent)), signal.SIGKILL)
    with pytest.raises(SandboxLost):
        running.wait()
    wait_until(lambda: ask(agent, "db", 5432) == "db:hello\n")


def test_a_reset_leaves_the_services_to_its_owner(group: Group[Sandbox]) -> None:
    agent = group[2]
    agent.files.write("/etc/hosts", "127.0.0.1\tdb\n")
    assert ask(agent, "db", 5432) in REFUSED
    agent.reset()
    assert ask(agent, "db", 5432) == "db:hello\n"


def test_a_fork_of_a_service_is_no_service(group: Group[Sandbox]) -> None:
    with group["db"].fork(1) as forks:
        assert forks[0].info.service is None
        assert ask(group[2], "db", 5432) == "db:hello\n"
        assert ask(forks[0], "web", 8080) in REFUSED


def compose(*, healthy_after: float) -> dict[str, Any]:
    """A database that is healthy after so many seconds, and a client of it that must not start before."""
    ready = f"sleep {healthy_after}; exec python3 -c '{{code}}' 5432 db".format(
        code=services.MIRROR.replace("'", '"')
    )
    return {
        "services": {
            "web": {
                "image": "host",
                "command": [
                    "python3",
                    "-c",
                    services.ASK + "\nimport time; time.sleep(600)",
                    "db",
                    "5432",
                    "0",
                ],
                "environment": {"PYTHONUNBUFFERED": "1"},
                "depends_on": {"db": {"condition": "service_healthy"}},
            },
            "db": {
                "image": "host",
                "command": ["sh", "-c", ready],
                "expose": ["5432"],
                "healthcheck": {
                    "test": [
                        "CMD",
                        "python3",
                        "-c",
                        "import socket; socket.create_connection(('127.0.0.1', 5432))",
                    ],
                    "interval": "100ms",
                    "retries": 3,
                    "start_period": "60s",
                    "start_interval": "100ms",
                },
            },
        }
    }


def test_a_compose_file_starts_in_order(stack: Stack, client: Client) -> None:
    document = compose(healthy_after=1.0)
    with Sandbox.create_group_from_compose(document, client=client, network="none") as group:
        assert group.services.keys() == {"db", "web"}
        wait_until(lambda: group["web"].logs() == "db:hello\n")
        assert ask(group["web"], "db", 5432) == "db:hello\n"
        group["web"].reset()
        wait_until(lambda: group["web"].logs() == "db:hello\n")


def test_a_service_that_is_not_healthy_leaves_nothing(stack: Stack, client: Client) -> None:
    document = compose(healthy_after=600.0)
    document["services"]["db"]["healthcheck"]["start_period"] = "0s"
    with pytest.raises(Unhealthy, match=r"service 'db' is not healthy: its healthcheck failed 3 times"):
        Sandbox.create_group_from_compose(document, client=client, network="none")
    assert Sandbox.list(client=client) == []
