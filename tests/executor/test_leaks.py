"""Nothing is left behind: after a thousand ops, after the executor's sudden death, after its end."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.executor.conftest import Make
from tests.executor.container import remove_group
from tests.executor.driver import Command, Driver, RunnerChannel
from tests.executor.processes import processes_below
from tests.waiting import wait_until_empty

pytestmark = pytest.mark.root


def open_descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def test_a_thousand_ops(box: Driver) -> None:
    runner = box.runner()
    assert runner.run("true")["exit_code"] == 0
    box.ask("alive")
    before = of_all(box, runner)
    mounts = Path(f"/proc/{box.process.pid}/mountinfo").read_text()
    for number in range(1000):
        assert runner.run(["/bin/true"])["exit_code"] == 0, number
    assert of_all(box, runner) == before
    assert Path(f"/proc/{box.process.pid}/mountinfo").read_text() == mounts
    assert box.run("ls -A /tmp; set -- /proc/[0-9]*; echo $#").stdout == b"2\n"


def of_all(box: Driver, runner: RunnerChannel) -> dict[int, int]:
    """By process, how many descriptors. An answer to a question of later: both may close something after theirs."""
    box.ask("alive")
    runner.ask({"check": True})
    return {pid: open_descriptors(pid) for pid in [box.process.pid, *processes_below(box.process.pid)]}


def test_runners_come_and_go(box: Driver) -> None:
    box.runner().close()
    before = when_none_is_left(box)
    for _ in range(40):
        assert box.run("(setsid sleep 0.01 &) ; echo x").stdout == b"x\n"
    assert when_none_is_left(box) == before


def when_none_is_left(box: Driver) -> int:
    """The executor's descriptors once it has removed the groups of all runners."""
    wait_until_empty(lambda: [path for top in groups_of(box) for path in top.glob("r*")])
    box.ask("alive")
    return open_descriptors(box.process.pid)


def groups_of(box: Driver) -> list[Path]:
    """In each hierarchy. By its whole name: a search through all groups meets those that just go."""
    root, name = Path("/sys/fs/cgroup"), box.setup["cgroup_parent"]
    return [*root.glob(name), *root.glob(f"*/{name}")]


def wait_gone(pids: list[int]) -> None:
    for pid in pids:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        assert select.select([fd], [], [], 60)[0], f"{pid} lives on"
        os.close(fd)


def test_a_killed_executor_takes_everything_along(any_box: Driver) -> None:
    command = any_box.runner().start("setsid nohup sleep 8888 & (setsid sleep 8889 &) ; echo up; sleep 8890")
    assert isinstance(command, Command)
    command.read_until(b"up")
    below = processes_below(any_box.process.pid)
    assert len(below) >= 5
    any_box.process.send_signal(signal.SIGKILL)
    any_box.process.wait()
    wait_gone(below)
    command.close()
    remove_groups(any_box)


def remove_groups(box: Driver) -> None:
    """What only the local backend's cleaning can remove: empty groups of a killed executor."""
    if not box.setup["cgroup_parent"]:
        return
    for top in groups_of(box):
        if top.parents[2].is_symlink():
            continue
        for group in [path for path in top.iterdir() if path.is_dir()]:
            remove_group(group)
        remove_group(top)


def test_a_server_that_dies_takes_the_executor_along() -> None:
    """The server's death, not only its hanging up: the executor is told by the kernel."""
    script = (
        "import os, socket, sys, time\n"
        "ours, theirs = socket.socketpair()\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    from sandlot_sidecar.executor.main import run\n"
        "    ours.close()\n"
        "    run(theirs)\n"
        "    os._exit(0)\n"
        "keep = os.dup(ours.fileno()), os.dup(theirs.fileno())\n"
        "print(pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    server = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    assert server.stdin is not None
    executor = int(server.stdout.readline())
    server.kill()
    server.wait()
    wait_gone([executor])
    server.stdin.close()
    server.stdout.close()


def test_end_kills_all_and_removes_the_groups(make: Make) -> None:
    box = make()
    command = box.runner().start("setsid nohup sleep 8888 & echo up; sleep 8889")
    assert isinstance(command, Command)
    command.read_until(b"up")
    below = processes_below(box.process.pid)
    box.ask("end")
    assert box.process.wait(60) == 0
    wait_gone(below)
    command.close()
    assert not groups_of(box)


def test_no_descriptor_reaches_a_command(any_box: Driver) -> None:
    inside = "import os; print(sorted(int(n) for n in os.listdir('/proc/self/fd')))"
    assert any_box.run(["python3", "-c", inside]).stdout == b"[0, 1, 2, 3]\n"


def test_a_runner_holds_little(box: Driver) -> None:
    """No control socket, no other runner's channel, no descriptor of the machine's root."""
    runner = box.runner()
    assert runner.run("true")["exit_code"] == 0  # it has closed by now what it closes
    control = os.readlink(f"/proc/{box.process.pid}/fd/{box.control}")
    assert control.startswith("socket:")
    runners = [pid for pid in processes_below(box.process.pid) if name_of(pid) == "sandlot-runner"]
    assert len(runners) == 1
    directory = Path(f"/proc/{runners[0]}/fd")
    links = [os.readlink(path) for path in directory.iterdir() if int(path.name) > 2]
    assert control not in links
    assert sum(link.startswith("socket:") for link in links) == 1
    assert not any(link.startswith("mnt:") for link in links)


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def test_a_hung_up_server_ends_it(make: Make) -> None:
    box = make()
    box.sock.shutdown(socket.SHUT_RDWR)
    assert box.process.wait(60) == 0
