"""The kill of a crowd that delays each system call, as a fork bomb does under gVisor."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

from sandlot_sidecar.executor.group_kill import CROWD, kill_members

from tests.executor.fake_group import FakeGroup, sleepers, was_killed

LONG = 1.2  # seconds: longer than the kill of a crowd may take before the init is killed


class SlowGroup(FakeGroup):
    """A group whose files take long to read, among them the one that is read for each round of signals."""

    @property
    def unenforced(self) -> bool:
        time.sleep(LONG)
        return super().unenforced


def test_the_time_that_the_signals_take_does_not_end_the_sandbox(tmp_path: Path) -> None:
    """What was forked meanwhile is still killed by itself, and the init and its other processes stay."""
    timeouts: list[None] = []
    with sleepers(CROWD + 1) as crowd, sleepers(1) as escaped:

        def listed() -> None:
            group.hold(*escaped if escaped[0].poll() is None else [])

        group = SlowGroup(tmp_path / "r1", pids=CROWD + 1, on_list=listed)
        group.hold(*crowd)
        with closing(group):
            kill_members(group, exclude=0, on_timeout=lambda: timeouts.append(None))
        assert timeouts == []
        assert [was_killed(process) for process in (*crowd, *escaped)] == [True] * (CROWD + 2)


def test_a_machine_that_pauses_before_the_signals_does_not_end_the_sandbox(tmp_path: Path) -> None:
    """Few that were found are killed by themselves, however late it is by then."""
    timeouts: list[None] = []
    with sleepers(1) as left:
        group = FakeGroup(tmp_path / "r1", on_list=lambda: time.sleep(LONG))
        group.hold(*left)
        with closing(group):
            assert kill_members(group, exclude=0, on_timeout=lambda: timeouts.append(None)) == 1
        assert timeouts == []
        assert was_killed(left[0])
