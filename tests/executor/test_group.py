"""Control groups whose parent takes no more: a full one has no memory left for another child."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sandlot_sidecar.executor.group import Group
from sandlot_sidecar.executor.group_directories import DIRECTORY
from sandlot_sidecar.executor.retired_groups import RetiredGroups

from tests.executor.conftest import CGROUP_TOP, cgroup_tops, needs_root
from tests.executor.driver import Command, Driver, Refused, RunnerChannel
from tests.executor.fake_group import FakeGroup, was_killed
from tests.executor.processes import children_of
from tests.executor.test_reset import descriptors
from tests.waiting import wait_until

LEAVES = """
import ctypes
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
while True:
    place = ctypes.c_void_p(libc.shmat(libc.shmget(0, 1 << 20, 0o1600), None, 0))
    ctypes.memset(place, 1, 1 << 20)
    libc.shmdt(place)
"""


def test_a_child_that_one_hierarchy_refuses_is_left_in_none(tmp_path: Path) -> None:
    directories: dict[str, int] = {}
    for name in ("pids", "memory", "cpuacct"):
        (tmp_path / name).mkdir()
        directories[name] = os.open(tmp_path / name, DIRECTORY)
    (tmp_path / "memory/r1").write_text("")  # takes the name, and is no group
    parent = Group(version=1, name="", directories=directories)
    before = sorted(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="Not a directory"):
        parent.child("r1")
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert [path.name for path in tmp_path.glob("*/*")] == ["r1"]
    parent.close()


def test_what_is_left_of_a_group_is_not_made_whole_again(tmp_path: Path) -> None:
    """Its parent may be without memory for it, and a reset must not fail for that."""
    directories: dict[str, int] = {}
    for name in ("cpu", "cpuacct", "memory", "pids"):
        (tmp_path / name).mkdir()
        directories[name] = os.open(tmp_path / name, DIRECTORY)
    (tmp_path / "cpuacct/r1/member").mkdir(parents=True)
    (tmp_path / "cpuacct/r1/member/process").write_text("")
    (tmp_path / "cpuacct/r1/cgroup.procs").write_text("")
    (tmp_path / "memory").rmdir()  # nothing can be made in it, as in a group without memory
    parent = Group(version=1, name="", directories=directories)
    limits: Any = SimpleNamespace(cgroup=SimpleNamespace(group=parent), watch=None)
    retired = RetiredGroups(limits, end_init=lambda: None, reap_ended=lambda: None)
    retired.add(Group(version=1, name="r1", directories={}))
    assert retired.names() == ["r1"]
    assert retired.kill("r1", end_init=lambda: None) == 0
    retired.remove_empty()
    assert retired.names() == ["r1"]
    assert not [path for path in tmp_path.glob("*/r1") if path.parent.name != "cpuacct"]
    shutil.rmtree(tmp_path / "cpuacct/r1")
    retired.remove_empty()
    assert retired.names() == []
    parent.close()


def test_a_group_whose_processes_are_being_killed_is_not_at_its_limit(tmp_path: Path) -> None:
    """The kill sets the limit to 0: an op that is killed for its memory would count as a fork bomb."""
    group = FakeGroup(tmp_path / "r1", pids=5, limit=5)
    assert (group.full(), group.holds_many(), group.pids_hits()) == (True, True, 1)
    group.put("pids.max", 0)
    assert (group.full(), group.holds_many(), group.pids_hits()) == (False, False, 0)
    group.close()


@pytest.mark.root
@needs_root
@pytest.mark.parametrize("last", ["killed", "ended", "ended after a killed one"])
def test_what_escapes_the_kill_of_an_op_dies_with_its_runner(box: Driver, last: str) -> None:
    """As under gVisor, where a fork during the kill escapes it; what the last op leaves by itself may stay."""
    answer, channel = box.ask_fd("runner")
    runner = RunnerChannel(channel)
    with subprocess.Popen(["sleep", "600"]) as escaped:
        try:
            if last != "ended":
                command = runner.start("echo up; sleep 600")
                assert isinstance(command, Command)
                command.read_until(b"up")
                runner.ask({"kill": True})
                command.wait()
            if last != "killed":
                runner.run("echo up")
            for group in [group for top in cgroup_tops() for group in top.glob("*/r*")]:
                (group / "cgroup.procs").write_text(str(escaped.pid))
            runner.close()
            wait_until(lambda: answer["runner"] not in children_of(box.process.pid))
            assert box.run("echo usable").stdout == b"usable\n"  # after the runner's end has been handled
            assert was_killed(escaped) is (last == "killed")
        finally:
            escaped.kill()


@pytest.mark.root
@needs_root
def test_a_reset_after_runners_that_found_no_memory_is_fresh(box: Driver) -> None:
    groups = [path for path in Path("/sys/fs/cgroup/memory").glob(f"{CGROUP_TOP}/*") if path.is_dir()]
    if len(groups) != 1:
        pytest.skip("needs a writable memory cgroup")
    before = 0
    for _ in range(2):
        assert box.run(["python3", "-c", LEAVES])["oom"]
        refused = set[str]()
        for _ in range(40):
            used = (groups[0] / "memory.usage_in_bytes").read_text()
            with contextlib.suppress(OSError):  # it grows meanwhile
                (groups[0] / "memory.limit_in_bytes").write_text(used)
            try:
                os.close(box.ask_fd("runner")[1])
            except Refused as error:
                refused.add(error.code)
        assert refused == {"memory_full"}
        answer = box.ask("reset", limits=box.setup["limits"])
        assert answer["equal"], answer["proof"]
        before = before or descriptors(box)
    wait_until(lambda: descriptors(box) <= before)
