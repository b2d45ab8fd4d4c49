"""The next generation is prepared while the current one is used: a reset begins it, and the proof is the same."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.executor.conftest import Box, Enter, Start
from tests.executor.container import NEEDS_RUNC
from tests.executor.driver import Command, Driver, RunnerChannel, wait_readable
from tests.executor.plants import IPC_PLANTS, PLANTS
from tests.executor.preparing import PROBE, ask, prepare, reset
from tests.executor.processes import processes_below
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real namespaces, mounts and cgroups"),
]

ALL = PLANTS | IPC_PLANTS
PROBE_BASE = {name: value for name, value in PROBE.items() if name != "shell"}
LOOK = """
cat /etc/hosts /etc/resolv.conf /etc/hostname /etc/passwd /etc/group; hostname; ipcs -a; ls -A /dev/mqueue
find / /etc /dev /root -maxdepth 1 -printf '%p %M %U:%G\\n' | grep -v ^/proc | sort
cut -d' ' -f4-6,9- /proc/self/mountinfo | sort; df -B1 --output=size / /dev/shm
"""
# Fills the memory with files, which no kill frees, and then with processes that hold some.
EAT = """
import os
held = os.memfd_create("held")
try:
    while True: os.write(held, bytes(1 << 20))
except OSError: pass
"""


@pytest.mark.parametrize("keep", [False, True])
def test_a_reset_begins_what_is_prepared(start: Box, keep: bool) -> None:
    box = start()
    fresh = box.run(LOOK).stdout
    for _ in range(2):
        prepare(box, keep=keep)
        for kind, (_, command) in ALL.items():
            assert box.run(command)["exit_code"] == 0, kind
        assert box.run(LOOK).stdout != fresh
        answer, fds = box.answer(box.send("reset", prepared=True, limits=box.setup["limits"], network="full"))
        assert (answer["equal"], answer["prepared"], answer["proof"]["processes"]) == (True, True, []), answer
        assert len(fds) == (1 if keep else 0)
        if keep:
            first = RunnerChannel(fds[0])
            assert first.run(LOOK).stdout == fresh
            first.close()
        assert box.run(LOOK).stdout == fresh


@pytest.mark.parametrize("kind", [name for name, (step, _) in ALL.items() if step != "root"])
def test_what_is_planted_is_seen_where_it_is_not_cleaned(start: Box, kind: str) -> None:
    step, command = ALL[kind]
    box = start(step)
    prepare(box)
    planted = box.run(command)
    assert planted["exit_code"] == 0, planted.stderr
    answer = reset(box)
    assert (answer["equal"], answer["prepared"]) == (False, True), answer


def prepared_init(box: Driver) -> int:
    current = box.ready["init_pid"]
    (found,) = [pid for pid in inits(box) if pid != current]
    return found


def kill_and_wait(pid: int) -> None:
    """On a busy machine a process that was killed may go on for a while."""
    fd = os.pidfd_open(pid)
    try:
        os.kill(pid, signal.SIGKILL)
        wait_readable(fd)
    finally:
        os.close(fd)


def inits(box: Driver) -> list[int]:
    return [pid for pid in processes_below(box.process.pid) if name_of(pid) == "init"]


def name_of(pid: int) -> str:
    """Its name; an empty one of a process that has ended since it was listed."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def runners(box: Driver) -> list[int]:
    return [pid for pid in processes_below(box.process.pid) if name_of(pid) == "sandlot-runner"]


@pytest.mark.parametrize(
    ("namespace", "change", "named"),
    [
        ("-m", ["sh", "-c", "echo x > /planted"], "file upper/planted: is new"),
        ("-m", ["mount", "-t", "tmpfs", "planted", "/root"], "mount /root: is new"),
        ("-u", ["hostname", "planted"], "hostname planted"),
        ("-i", ["ipcmk", "-Q"], "ipc msg"),
    ],
)
def test_the_proof_is_read_after_the_reset_has_begun(
    start: Box, namespace: str, change: list[str], named: str
) -> None:
    """Code cannot reach what is prepared: somebody else has to change it."""
    box = start()
    prepare(box)
    subprocess.run(["nsenter", "-t", str(prepared_init(box)), namespace, "--", *change], check=True)
    answer = reset(box)
    assert (answer["equal"], answer["prepared"]) == (False, True), answer
    assert any(text.startswith(named) for text in answer["proof"]["differences"]), answer


def test_code_sees_nothing_of_it(start: Box) -> None:
    box = start()
    before = box.run(LOOK).stdout
    runner = box.runner()
    prepare(box, keep=True)
    assert runner.run(LOOK).stdout == before
    held = runner.run("ls -l /proc/self/fd /proc/1/fd").stdout
    assert b"mnt:[" not in held
    assert b"pidfd" not in held


def test_it_serves_its_owner_while_it_prepares(box: Driver) -> None:
    runner = box.runner()
    command = runner.start(["sleep", "999"])
    assert isinstance(command, Command)
    prepare(box)
    assert runner.ask({"signal": int(signal.SIGTERM), "tree": False})["signalled"] == 1
    assert command.wait()["signal"] == signal.SIGTERM


def test_what_is_not_ready_is_not_used(box: Driver) -> None:
    assert not ask(box)
    box.run("echo x > /dirt")
    assert reset(box)["equal"]
    assert box.run("test -e /dirt")["exit_code"] == 1
    wait_until(lambda: len(inits(box)) == 1)


@pytest.mark.parametrize("limits", [{"memory": 64 << 20}, {"disk": 1 << 20}])
def test_it_is_not_used_for_another_size(box: Driver, limits: dict[str, int]) -> None:
    prepare(box)
    answer = reset(box, **limits)
    assert (answer["equal"], answer["prepared"]) == (True, False), answer
    prepare(box, **limits)
    answer = reset(box, **limits)
    assert (answer["equal"], answer["prepared"]) == (True, True), answer


def test_it_is_not_used_for_another_network(box: Driver) -> None:
    prepare(box)
    answer = box.ask("reset", prepared=True, limits=box.setup["limits"], network="none")
    assert (answer["equal"], answer["prepared"]) == (True, False), answer


def test_an_image_without_a_shell_is_prepared(box: Driver) -> None:
    prepare(box, probe={**PROBE_BASE, "argv": ["/"]}, exit_code=126)
    answer = reset(box)
    assert (answer["equal"], answer["prepared"]) == (True, True), answer


def test_it_has_its_own_network(box: Driver) -> None:
    prepare(box, network="none")
    answer = reset(box, network="none")
    assert (answer["equal"], answer["prepared"]) == (True, True), answer
    assert box.run("tail -n +3 /proc/net/dev | cut -d: -f1").stdout.split() == [b"lo"]


def test_it_has_the_full_network_after_an_owner_without_one(box: Driver) -> None:
    look = "readlink /proc/self/ns/net"
    full = box.run(look).stdout
    box.ask("apply", network="none")
    assert box.run(look).stdout != full
    prepare(box)
    answer = reset(box)
    assert (answer["equal"], answer["prepared"]) == (True, True), answer
    assert box.run(look).stdout == full


@pytest.mark.parametrize("keep", [False, True])
def test_a_lost_one_is_not_used(start: Box, keep: bool) -> None:
    box = start()
    prepare(box, keep=keep)
    kill_and_wait(runners(box)[0] if keep else prepared_init(box))
    box.run("echo x > /dirt")
    answer = reset(box)
    assert (answer["equal"], answer["prepared"]) == (True, False), answer
    assert box.run("test -e /dirt")["exit_code"] == 1


@pytest.mark.parametrize(
    "probe", [{"shell": "exit 3"}, {"argv": ["/no/such"]}, {"shell": "sleep 998 & exit 0"}]
)
def test_a_first_command_that_fails_is_not_taken_for_ready(box: Driver, probe: dict[str, object]) -> None:
    ask(box, probe={**PROBE_BASE, **probe})
    wait_until(lambda: box.ask("alive") and not runners_with_children(box))
    answer = reset(box)
    assert (answer["equal"], answer["prepared"]) == (True, False), answer
    wait_until(lambda: len(inits(box)) == 1)


def runners_with_children(box: Driver) -> list[int]:
    return [pid for pid in runners(box) if processes_below(pid)]


def test_a_lost_init_leaves_what_is_prepared(box: Driver) -> None:
    prepare(box)
    os.kill(box.ready["init_pid"], signal.SIGKILL)
    assert box.wait_event()["event"] == "init_lost"
    answer = reset(box)
    assert (answer["equal"], answer["prepared"]) == (True, True), answer


@pytest.mark.parametrize("keep", [False, True])
def test_many_leave_nothing(start: Box, keep: bool) -> None:
    box = start()
    prepare(box, keep=keep)
    assert reset(box)["equal"]  # the first one opens what is kept open
    before = descriptors(box)
    for number in range(12):
        prepare(box, keep=keep)
        assert box.run(f"echo {number} > /x; (sleep 777 &)")["exit_code"] == 0
        answer = reset(box)
        assert (answer["equal"], answer["prepared"]) == (True, True), answer
    wait_until(lambda: descriptors(box) <= before and len(inits(box)) == 1)


def descriptors(box: Driver) -> int:
    box.ask("alive")
    return len(os.listdir(f"/proc/{box.process.pid}/fd"))


@NEEDS_RUNC
def test_a_runner_that_waits_outlives_the_owners_memory(container: Start, enter: Enter) -> None:
    limit = 64 << 20
    box = enter(container(linux={"resources": {"memory": {"limit": 96 << 20}}}), limits={"memory": limit})
    prepare(box, keep=True, memory=limit)
    many = (
        "for i in $(seq 40); do python3 -c 'a = bytearray(9 << 20); import time; time.sleep(1)' & done; wait"
    )
    for command in (["python3", "-c", EAT], many) * 3:
        # A command's own runner is in its group: the kernel may kill it for the command's memory.
        with suppress(EOFError):
            box.run(command)
    answer = reset(box, memory=limit)
    assert (answer["equal"], answer["prepared"]) == (True, True), answer


@NEEDS_RUNC
def test_parts_on_the_volume_are_deleted(container: Start, enter: Enter) -> None:
    box = container()
    driver = enter(box)
    for _ in range(3):
        prepare(driver)
        driver.run("echo x > /file")
        assert reset(driver)["prepared"]
    prepare(driver)
    wait_until(lambda: sorted(path.name for path in (box.directory / "store").iterdir()) == ["4", "next-5"])


@NEEDS_RUNC
def test_a_restart_continues_with_the_owners_files(container: Start, enter: Enter) -> None:
    """Not with the newer part, which nobody has used."""
    box = container()
    driver = enter(box)
    prepare(driver)
    assert reset(driver)["prepared"]
    driver.run("echo kept > /kept")
    prepare(driver)
    driver.process.kill()
    driver.process.wait()
    again = enter(box, root={"resume": True})
    assert again.read("/kept") == b"kept\n"
