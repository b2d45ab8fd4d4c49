"""Turns of those who forward datagrams: in order, and with time left for all else."""

from __future__ import annotations

import asyncio
import time
from functools import partial

from sandlot_gateway.data.udp_turns import Turns

from tests.waiting import loop_turns, until


async def test_turns_are_taken_in_order_and_leave_half_of_the_time():
    turns, order = Turns(), []

    def take(name: str) -> None:
        order.append(name)
        turns.spent(0.01)
        if len(order) < 12:
            turns.wait(partial(take, name), by=name)

    begin = time.monotonic()
    turns.spent(0.02)
    assert turns.must_wait()
    for name in "aabc":
        turns.wait(partial(take, name), by=name)
    await until(lambda: len(order) >= 15)
    turns.close()
    assert order[:12] == list("abc" * 4)
    assert time.monotonic() - begin >= 0.2


async def test_who_waits_for_a_turn_has_spent_it_before_the_next_one_gets_one():
    turns, had = Turns(), []

    async def take(name):
        await turns.turn(by=name)
        had.append(name)
        turns.spent(10.0)

    turns.spent(0.01)
    waiting = [asyncio.create_task(take(name)) for name in "abc"]
    await until(lambda: had)
    await loop_turns(10)
    assert had == ["a"]
    turns.close()
    for one in waiting:
        one.cancel()
    await asyncio.wait(waiting)
