"""How often a gateway that stays dead is searched, and when a search is given up."""

from __future__ import annotations

import asyncio

from sandlot_gateway.backends.kubernetes.search import Search
from sandlot_gateway.tasks import Tasks

from tests.gateway.lives_messages import VirtualTime
from tests.waiting import loop_turns


def test_one_that_stays_dead_is_searched_ever_more_seldom_until_it_has_begun_again() -> None:
    """Each create with a key began another search, of all sidecars, as long as a gateway crashed again and again."""
    loop = VirtualTime()
    began: list[float] = []

    async def look() -> None:
        began.append(loop.now)

    async def ask(search: Search) -> None:
        assert await search.is_over(look, timeout=1.0)

    def searched(search: Search, seconds: int) -> list[float]:
        began.clear()
        start = loop.now
        for _ in range(seconds):
            loop.run_until_complete(ask(search))
            loop.now += 1.0
        return [at - start for at in began]

    try:
        search = Search(Tasks(), repeats=True)
        assert searched(search, 250) == [0, 6, 17, 38, 79, 140, 201]
        search.outdate()
        assert searched(search, 20) == [0, 6, 17]
    finally:
        loop.close()


async def test_an_outdated_search_ends() -> None:
    """Each gateway that began while another was dead left one more that polled all sidecars."""
    tasks, now = Tasks(), 0

    async def look() -> None:
        nonlocal now
        now += 1
        try:
            await asyncio.Event().wait()
        finally:
            now -= 1

    search = Search(tasks, repeats=True)
    try:
        waiting = asyncio.create_task(search.is_over(look, timeout=1.0))
        await loop_turns(2)
        search.outdate()
        assert not await waiting
        assert not await search.is_over(look, timeout=0.01)
        assert now == 1
    finally:
        await tasks.close()
