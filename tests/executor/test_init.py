"""The init of a sandbox: a program of its own that makes the calls it is told to, or a fork that does the same."""

from __future__ import annotations

import errno
import os
import subprocess
from typing import Any, cast

import pytest
from sandlot_sidecar.executor import call_list, init_program
from sandlot_sidecar.executor.init import Init

from tests.executor.conftest import Make, user_namespaces_allowed
from tests.executor.test_isolation import seen_of_init

MACHINE = os.uname().machine
# Before its executor begins: no file of the program runs.
FORKED = "from sandlot_sidecar.executor import init_program; init_program.image = lambda machine: None\n"
needs_program = pytest.mark.skipif(MACHINE not in init_program.MACHINES, reason=f"no program for {MACHINE}")


def calls() -> bytes:
    made = init_program.Calls(MACHINE, memory=init_program.MEMORY)
    made.add("chdir", b"/\0")
    made.add("chdir", b"/not there\0")
    made.add("close", 77)
    return made.packed()


@needs_program
def test_the_program_makes_calls_and_tells_their_results() -> None:
    fd = os.memfd_create("init")
    os.write(fd, init_program.image(MACHINE) or b"")
    os.fchmod(fd, 0o555)
    path = os.open(f"/proc/self/fd/{fd}", os.O_PATH)
    os.close(fd)
    try:
        process = subprocess.Popen(
            ["init"],
            executable=f"/proc/self/fd/{path}",
            pass_fds=[path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
    finally:
        os.close(path)
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(3):
            os.write(process.stdin.fileno(), calls())
            answer = os.read(process.stdout.fileno(), init_program.SIZE)
            assert init_program.results(answer)[:4] == [0, -errno.ENOENT, -errno.EBADF, call_list.END]
        process.stdin.close()
        assert process.wait(timeout=60) == 1


@pytest.mark.parametrize("machine", call_list.CALLS)
def test_equal_arguments_are_there_once(machine: str) -> None:
    made = init_program.Calls(machine, memory=4096)
    for number in range(40):
        made.add("rt_sigaction", number, b"the same", 0, 8)
    made.add("chdir", b"another\0")
    packed = made.packed()
    records = [call_list.RECORD.unpack_from(packed, at * call_list.RECORD.size) for at in range(42)]
    assert records[-1][0] == call_list.END
    assert {record[2] for record in records[:40]} == {4096 + 42 * call_list.RECORD.size}
    assert packed[42 * call_list.RECORD.size :] == b"the same" + b"another\0"
    assert packed[records[40][1] - 4096 :] == b"another\0"


def test_a_machine_whose_calls_are_unknown() -> None:
    assert init_program.image("vax") is None
    with pytest.raises(OSError, match="no init for the machine vax"):
        init_program.Calls("vax", memory=0)


def test_a_list_fits_into_one_write_to_a_pipe() -> None:
    made = init_program.Calls(MACHINE, memory=init_program.MEMORY)
    for number in range(init_program.MAX_LIST // call_list.RECORD.size):
        made.add("close", number)
    with pytest.raises(AssertionError):
        made.packed()


@pytest.mark.root
@pytest.mark.parametrize("rootless", [False, True])
@pytest.mark.parametrize("network", ["full", "none"])
def test_a_fork_is_as_closed_as_the_program(make: Make, rootless: bool, network: str) -> None:
    if rootless and not user_namespaces_allowed():
        pytest.skip("user namespaces, or this interpreter, are not allowed to an ordinary user here")
    if not rootless and os.geteuid() != 0:
        pytest.skip("needs root: real namespaces, mounts and cgroups")
    box = make(first=FORKED, rootless=rootless, limits={"pids": 100})
    box.ask("apply", network=network)
    told = seen_of_init(box)
    assert (told.pop("cmdline"), told.pop("fd"), told.pop("syscall")) in (
        ("b''", "[]", "1"),
        ("b''", "13", "13"),
    )
    assert set(told.values()) == {"13"}, told
    assert box.run("kill -15 1; kill -9 1; echo on").stdout == b"on\n"
    answer = box.ask("reset", network="full")
    assert answer["equal"], answer


class Proc:
    """A /proc whose stat files say the same of each process."""

    def __init__(self, stat: bytes) -> None:
        self.stat = stat

    def read(self, path: str) -> bytes:
        assert path.endswith("/stat")
        return self.stat


@pytest.mark.parametrize(
    ("flags", "vsize", "ending"),
    [(4194560, 8192, False), (4194564, 0, True), (0, 8192, False), (0, 0, True)],
    ids=["linux", "linux-ending", "gvisor", "gvisor-ending"],
)
def test_an_init_that_exits_is_told_from_one_that_lives(flags: int, vsize: int, ending: bool) -> None:
    """Under gVisor the flags are always 0, and the size is 0 once its memory is released."""
    init = Init.__new__(Init)
    init.pid = 7
    stat = f"7 (in) it) S 1 1 1 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 100 {vsize} 1"
    assert init.ending(cast("Any", Proc(stat.encode()))) is ending
