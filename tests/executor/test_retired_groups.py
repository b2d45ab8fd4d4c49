"""What ops have left in the groups of ended runners: what a kill let escape dies, and nothing waits for it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sandlot_sidecar.executor.counters import Baseline
from sandlot_sidecar.executor.group import Group
from sandlot_sidecar.executor.limits import Limits
from sandlot_sidecar.executor.memory_watch import MemoryWatch
from sandlot_sidecar.executor.retired_groups import RetiredGroups
from sandlot_sidecar.executor.runner_factory import Child
from sandlot_sidecar.executor.runners import Runners

from tests.executor.fake_group import FakeGroup, fake_parent, sleepers, was_killed
from tests.waiting import wait_until


class Groups:
    """The groups of one sandbox, in a directory; `ends` are those of its init."""

    def __init__(self, path: Path, watch: MemoryWatch | None) -> None:
        self.path = path
        self.ends: list[None] = []
        self.parent = fake_parent(path)
        cgroup = SimpleNamespace(group=self.parent, limiting=[])
        self.limits: Any = SimpleNamespace(cgroup=cgroup, watch=watch, values={})
        self.retired = RetiredGroups(
            self.limits, end_init=lambda: self.ends.append(None), reap_ended=lambda: None
        )
        self._made: list[Group] = [self.parent]

    def make(self, name: str, **given: Any) -> FakeGroup:
        """Make the group of a runner."""
        made = FakeGroup(self.path / name, **given)
        self._made.append(made)
        return made

    def close(self) -> None:
        """Close what it opened."""
        for group in self._made:
            group.close()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Groups]:
    """Where the kernel only counts, as gVisor does."""
    watch = MemoryWatch(Group(version=2, name="none", directories={}), cores=None)
    made = Groups(tmp_path, watch)
    yield made
    made.close()
    watch.close()


@pytest.fixture
def groups(tmp_path: Path) -> Iterator[Groups]:
    made = Groups(tmp_path, None)
    yield made
    made.close()


def test_what_escapes_the_kill_of_a_bomb_dies(watched: Groups) -> None:
    """One process is no bomb, but would grow to one again."""
    group = watched.make("r1", pids=4, limit=4)
    with sleepers(1) as bomb, sleepers(1) as escaped:
        group.hold(*bomb)
        watched.retired.add(group)
        assert was_killed(bomb[0])
        group.hold(*escaped)
        group.put("pids.current", 1)
        watched.retired.remove_empty()
        assert was_killed(escaped[0])


def test_what_escapes_a_request_to_kill_dies(watched: Groups) -> None:
    """A forked job kills, so this process notes it by itself."""
    group = watched.make("r1")
    with sleepers(1) as escaped:
        group.hold(*escaped)
        watched.retired.add(group)
        assert escaped[0].poll() is None
        watched.retired.note_kill("r1")
        watched.retired.remove_empty()
        assert was_killed(escaped[0])


def test_few_processes_that_escape_a_kill_do_not_end_the_sandbox(watched: Groups) -> None:
    """Each look at them takes most of a second; the next sweep signals the ones that are new by then."""
    with sleepers(1) as first, sleepers(1) as second:

        def listed() -> None:
            group.hold(*first, *second)
            time.sleep(0.6)

        group = watched.make("r1", pids=2, on_list=listed)
        group.hold(*first)
        watched.retired.add(group, killed=True)
        assert was_killed(first[0])
        watched.retired.remove_empty()
        assert was_killed(second[0])
    assert watched.ends == []


def test_a_sweep_goes_on_while_what_was_killed_is_left(groups: Groups) -> None:
    """A process that cannot die yet, in a system call that waits for a disk, say, can do so much later."""
    other = Groups(groups.path, None)
    groups.retired.add(groups.make("r1"), killed=True)
    other.retired.add(groups.make("r2"))
    wait_until(lambda: other.retired.poll_timeout_ms() is None)
    assert groups.retired.poll_timeout_ms() is not None
    other.close()


@pytest.mark.parametrize("noted", ["before", "after"])
def test_a_kill_counts_whether_the_runner_ends_before_or_after_its_request(
    groups: Groups, noted: str
) -> None:
    limits: Limits = groups.limits
    runners = Runners(limits=limits, pod=None, init=lambda: pytest.fail("needs no init"))
    group = groups.make("r1")
    with sleepers(1) as escaped:
        group.hold(*escaped)
        pid = os.fork()
        if pid == 0:
            os._exit(1)  # lost in the middle of its op
        runner = Child(pid=pid, group=group, baseline=Baseline())
        runners.adopt(runner)
        if noted == "before":
            runners.note_kill(pid)
        runners.on_ended(runner.fd)
        if noted == "after":
            assert escaped[0].poll() is None
            runners.note_kill(pid)
            runners.retired.remove_empty()
        assert was_killed(escaped[0])
