"""Sandboxes of a saturated machine take turns; nobody waits long, nobody is forgotten."""

from __future__ import annotations

import asyncio
import time

import pytest
from sandlot_gateway.data.time_slices import LONGEST_WAIT, OPS_PER_CORE, TimeSlice, TimeSlices

from tests.waiting import loop_turns


@pytest.fixture
def turns() -> TimeSlices:
    """Turns that last until their commands are answered."""
    return TimeSlices(cores=1, wanted=lambda: True, turn=60.0, longest_wait=60.0)


def leave_all(turns: TimeSlices, commands: list[asyncio.Task[TimeSlice | None]]) -> None:
    for task in commands:
        turn = task.result()
        assert turn is not None
        turns.leave(turn)


async def enter_all(turns: TimeSlices, lane: str, count: int) -> list[asyncio.Task[TimeSlice | None]]:
    """So many commands of one sandbox, each as far as it comes."""
    tasks = [asyncio.ensure_future(turns.enter(lane)) for _ in range(count)]
    await loop_turns()
    return tasks


async def steps() -> None:
    """What can go on without a turn's time has done so afterwards."""
    await loop_turns(5)


async def test_on_a_machine_with_room_nobody_waits() -> None:
    turns = TimeSlices(cores=1, wanted=lambda: False)
    entered = [await turns.enter(lane) for lane in "abc" for _ in range(3 * OPS_PER_CORE)]
    assert entered == [None] * len(entered)


async def test_the_next_sandbox_begins_when_the_first_is_answered(turns: TimeSlices) -> None:
    first = await enter_all(turns, "a", OPS_PER_CORE)
    second = await enter_all(turns, "b", 3)
    assert all(task.done() for task in first)
    assert not any(task.done() for task in second)
    leave_all(turns, first)
    await steps()
    assert len({id(task.result()) for task in second}) == 1


async def test_a_sandbox_keeps_its_turn_for_the_commands_that_follow(turns: TimeSlices) -> None:
    (first,) = await enter_all(turns, "a", 1)
    filler = await enter_all(turns, "b", OPS_PER_CORE)
    waiting = await enter_all(turns, "c", 1)
    turn = first.result()
    assert turn is not None
    turns.leave(turn)
    assert await turns.enter("a") is turn
    assert all(task.done() for task in filler)
    assert not waiting[0].done()
    leave_all(turns, [*first, *filler])
    assert (await waiting[0]) is not None


async def test_commands_that_take_long_hold_nobody_up() -> None:
    turn = 2.0  # so that a loaded machine looks at what waits before it is over
    turns = TimeSlices(cores=1, wanted=lambda: True, turn=turn, longest_wait=60.0)
    begun = time.monotonic()
    await enter_all(turns, "a", OPS_PER_CORE)
    (waiting,) = await enter_all(turns, "b", 1)
    assert (await asyncio.wait_for(waiting, 30)) is not None
    assert time.monotonic() - begun >= turn * 0.9
    # A new command of the first one has to wait for a turn of its own, and gets it.
    await enter_all(turns, "b", OPS_PER_CORE)
    (again,) = await enter_all(turns, "a", 1)
    assert not again.done()
    assert (await asyncio.wait_for(again, 30)) is not None


async def test_where_many_wait_turns_are_short() -> None:
    lanes, turn = 300, 0.1
    turns = TimeSlices(cores=1, wanted=lambda: True, turn=turn)
    begun = time.monotonic()
    tasks = [asyncio.ensure_future(turns.enter(f"{n}")) for n in range(lanes) for _ in range(OPS_PER_CORE)]
    await asyncio.gather(*tasks)
    # With whole turns, one after the other, it would be 30 s; some slack for a slow machine.
    assert time.monotonic() - begun < lanes * turn / 2
    assert lanes * turn / 2 > 10 * LONGEST_WAIT


async def test_a_client_that_has_gone_takes_no_turn(turns: TimeSlices) -> None:
    first = await enter_all(turns, "a", OPS_PER_CORE)
    gone = await enter_all(turns, "b", OPS_PER_CORE)
    last = await enter_all(turns, "c", 1)
    for task in gone:
        task.cancel()
    await asyncio.gather(*gone, return_exceptions=True)
    leave_all(turns, first)
    await steps()
    assert last[0].result() is not None
