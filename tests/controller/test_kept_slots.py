"""When a reused pod counts as forgotten after its sandbox's end: by the last end, and only while nothing contradicts it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sandlot_controller.act.kept_slots import KeptSlots
from sandlot_controller.settings import Settings

from tests.controller.played import POD, Part, running, settings_in
from tests.waiting import loop_turns

GRACE = 30.0


class Play(Part):
    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.kept = KeptSlots(self.world, **self.given)

    def ended(self, generation: int, *, pod: str = POD) -> None:
        self.record(generation, pod=pod, phase="Ended")

    async def at(self, now: float) -> None:
        """Let the time pass; an end in another pod wakes the loop."""
        self.now = now
        self.ended(int(now) + 1, pod="i-gone")
        await loop_turns(20)


@pytest.fixture
async def play(tmp_path: Path) -> AsyncIterator[Play]:
    play = Play(settings_in(tmp_path, reset_grace=GRACE))
    async with running(play.kept.run()):
        yield play


async def test_a_pod_is_asked_once_the_grace_after_its_last_end_is_over(play: Play) -> None:
    play.ended(1)
    await play.at(29.0)
    play.ended(2)
    play.sidecars.owner_id = "sb-2"
    await play.at(31.0)
    assert play.sidecars.asked == 0, "its gateway has 28 s left to reset it"
    await play.at(59.0)
    assert play.sidecars.ended == ["sb-2"]


async def test_a_silent_pod_is_deleted_after_a_second_look_only(play: Play) -> None:
    play.sidecars.silent = True
    play.ended(1)
    await play.at(100.0)  # the controller was held up
    assert (play.sidecars.asked, play.deletion.deleted) == (1, [])
    await play.at(129.0)
    assert play.deletion.deleted == []
    await play.at(135.0)
    assert play.deletion.deleted == [POD]


async def test_a_pod_that_refuses_the_controller_s_certificate_is_asked_until_it_does_not(play: Play) -> None:
    play.sidecars.untrusted = True
    play.sidecars.owner_id = "sb-1"
    play.ended(1)
    for now in (30.0, 65.0, 100.0):
        await play.at(now)
    assert (play.sidecars.asked, play.deletion.deleted, play.sidecars.ended) == (3, [], [])
    play.sidecars.untrusted = False
    await play.at(105.0)
    assert play.sidecars.ended == ["sb-1"]


@pytest.mark.parametrize("phase", ["Running", "Ended"])
async def test_a_silent_pod_that_has_another_owner_by_then_stays(play: Play, phase: str) -> None:
    play.sidecars.silent = True
    play.ended(1)
    await play.at(30.0)
    play.sidecars.while_asked.append(lambda: play.record(2, phase=phase))
    await play.at(61.0)
    assert play.deletion.deleted == []
    assert play.sidecars.asked == 2
