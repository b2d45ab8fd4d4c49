"""What makes a group a fork bomb in a full pod: it is busy in system calls for seconds, not at one look."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sandlot_sidecar.executor.crowded_bombs import SPAN, SPANS, CrowdedBombs
from sandlot_sidecar.executor.group import Group
from sandlot_sidecar.executor.memory_watch import MemoryWatch
from sandlot_sidecar.executor.op import FULL_INTERVAL

from tests.executor.fake_group import FakeGroup

TICK = 10  # milliseconds: gVisor's clocks of CPU time move in such steps
LIMIT = 100


class Pod:
    """A group of a pod, and the checks of it; time passes from check to check."""

    def __init__(self, path: Path, watch: MemoryWatch) -> None:
        self.group = FakeGroup(path, pids=LIMIT - 10, limit=LIMIT)
        self._watch = watch
        self._bombs = CrowdedBombs()
        self._now = 0.0
        self._used = 0
        self.fill()

    def fill(self, full: bool = True) -> None:
        """Let the pod be full: this machine has more processes than one, and fewer than a million."""
        self._watch.limits_changed(cores=None, processes=1 if full else 1_000_000)

    def found(self, seconds: float, *, ticks_a_second: int) -> bool:
        """Check for some seconds, as long as the group is no bomb; whether it is one."""
        end, used = self._now + seconds, self._used
        begun = self._now
        while self._now < end:
            self._now += FULL_INTERVAL
            self._used = used + int((self._now - begun) * ticks_a_second + 1e-6) * TICK
            self.group.put("cpuacct.usage_sys", self._used * 1_000_000)
            self._watch.check(None)
            if self._bombs.has(self.group, self._watch, now=self._now):
                return True
        return False


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    watch = MemoryWatch(Group(version=2, name="none", directories={}), cores=None)
    made = Pod(tmp_path / "r1", watch)
    yield made
    made.group.close()
    watch.close()


def test_a_group_that_is_busy_in_system_calls_is_found_within_seconds(pod: Pod) -> None:
    assert pod.found(SPANS * (SPAN + FULL_INTERVAL) + FULL_INTERVAL, ticks_a_second=5)


def test_processes_that_begin_when_they_fill_the_pod_are_no_bomb(pod: Pod) -> None:
    for _ in range(20):
        assert not pod.found(SPAN - 2 * FULL_INTERVAL, ticks_a_second=100)
        assert not pod.found(10 * SPAN, ticks_a_second=0)
        pod.fill(False)
        assert not pod.found(SPAN + 2 * FULL_INTERVAL, ticks_a_second=0)
        pod.fill()


def test_a_tick_now_and_then_is_no_bomb(pod: Pod) -> None:
    """One tick between two checks looks like a fifth of a core."""
    assert not pod.found(120, ticks_a_second=2)


def test_a_group_with_half_of_its_limit_is_no_bomb_and_begins_anew(pod: Pod) -> None:
    for _ in range(20):
        pod.group.put("pids.current", LIMIT // 2)
        assert not pod.found(SPANS * SPAN + 3 * FULL_INTERVAL, ticks_a_second=100)
        pod.group.put("pids.current", LIMIT - 10)
        assert not pod.found(SPANS * SPAN - FULL_INTERVAL, ticks_a_second=100)


def test_a_pod_with_room_has_no_such_bomb_and_it_begins_anew(pod: Pod) -> None:
    for _ in range(20):
        pod.fill(False)
        assert not pod.found(SPANS * SPAN + 3 * FULL_INTERVAL, ticks_a_second=100)
        pod.fill()
        assert not pod.found(SPANS * SPAN - FULL_INTERVAL, ticks_a_second=100)
