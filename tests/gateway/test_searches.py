"""How often a gateway that stays dead is searched."""

from __future__ import annotations

from sandlot_gateway.backends.kubernetes.search import Search
from sandlot_gateway.tasks import Tasks

from tests.gateway.lives_messages import VirtualTime


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
