"""What a gateway fetches of other gateways' events, for which cursors, and what they no longer have."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import msgspec
import pytest
from sandlot_contract.ids import SandboxId
from sandlot_contract.statuses import Status
from sandlot_gateway.core.gateways import PeerEvents
from sandlot_gateway.events import relay as relays
from sandlot_gateway.events.cursor import Cursor
from sandlot_gateway.events.event import EventFilter, EventType, event_of
from sandlot_gateway.events.journal import Journal
from sandlot_gateway.events.relay import Relay
from sandlot_gateway.events.service import Events
from sandlot_gateway.events.tenant import OVERLAP, CursorExpired, TenantEvents
from sandlot_gateway.sandboxes import Sandbox, Spec

from tests.waiting import until

NOW = 1_000_000.0
OTHER, THIRD = "aaaaaaaa", "bbbbbbbb"


class Clock:
    now = NOW

    def __call__(self) -> float:
        return self.now


class Others:
    """The other gateways' answers by address, and from when on each was asked without a cursor."""

    def __init__(self) -> None:
        self.answers: dict[str, PeerEvents | None] = {}
        self.asked: list[tuple[str, float]] = []

    async def events(
        self, tenant: str, *, after: Mapping[str, str], since: Callable[[str], float]
    ) -> dict[str, PeerEvents | None]:
        self.asked += [(address, since(address)) for address in self.answers if address not in after]
        return dict(self.answers)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> Others:
    monkeypatch.setattr(relays, "PAUSE", 0.01)
    return Others()


@pytest.fixture
def journal(clock: Clock) -> Journal:
    journal = Journal(entries=10, memory=1 << 20, keep=3600.0, clock=clock)
    journal.recovered(known_since=NOW)
    return journal


@pytest.fixture
async def events(journal: Journal, others: Others) -> AsyncIterator[Events]:
    relay: Any = Relay(journal, others)  # type: ignore[arg-type]
    events = Events(journal, relay=relay, limit=10, ended=lambda reason: None)
    yield events
    await events.close()


def sandbox(number: int, *, at: float = NOW) -> Sandbox:
    return Sandbox(
        id=SandboxId(f"sbx-{number}"),
        tenant="t",
        spec=Spec(name="n", image="host"),
        created_at=at,
        updated_at=at,
        started_at=at,
        status=Status.RUNNING,
    )


def answer(
    *sandboxes: Sandbox, journal: str = OTHER, known_since: float = 0.0, dropped_until: float = 0.0
) -> PeerEvents:
    return PeerEvents(
        cursor=f"{journal}-{len(sandboxes)}-{int(NOW * 1000)}",
        known_since=known_since,
        dropped_until=dropped_until,
        more=False,
        events=[msgspec.Raw(event_of(one, EventType.READY).text) for one in sandboxes],
    )


async def opened(events: Events, cursor: Cursor) -> None:
    await events.stream(
        "t",
        cursor=cursor,
        from_oldest=False,
        wanted=EventFilter(),
        is_allowed=lambda: True,
        follow=False,
    )


@pytest.mark.parametrize("dropped", ["", OTHER, THIRD, "here"])
async def test_what_any_gateway_dropped_after_a_cursor_expires_it(
    events: Events, others: Others, journal: Journal, dropped: str
) -> None:
    for name in (OTHER, THIRD):
        dropped_until = NOW - 150 if name == dropped else NOW - 101 - OVERLAP
        others.answers[name] = answer(journal=name, dropped_until=dropped_until)
    for number in range(11 if dropped == "here" else 10):
        journal.ready(sandbox(number))
    opening = opened(events, Cursor(OTHER, 7, NOW - 100))
    if dropped:
        with pytest.raises(CursorExpired):
            await opening
    else:
        await opening


async def test_a_gateway_that_was_silent_is_asked_again_for_what_it_owes(
    events: Events, others: Others, journal: Journal
) -> None:
    others.answers = {"one": answer(), "two": None}
    journal.of("t").readers.add(asyncio.Event())
    await opened(events, Cursor(OTHER, 7, NOW - 1000))
    others.asked.clear()
    others.answers["two"] = answer(sandbox(1, at=NOW - 900), journal=THIRD)
    await until(lambda: "sbx-1:ready" in journal.of("t"))
    assert set(others.asked) == {("one", NOW - OVERLAP), ("two", NOW - 1000 - OVERLAP)}


async def test_a_cursor_of_its_own_fetches_what_only_others_learned_meanwhile(
    events: Events, others: Others, journal: Journal
) -> None:
    others.answers["one"] = answer(sandbox(1, at=NOW - 900))
    await opened(events, Cursor(journal.id, 0, NOW - 1000))
    assert "sbx-1:ready" in journal.of("t")


async def test_a_gateway_that_joins_or_begins_again_refills_nothing_old(
    events: Events, others: Others, journal: Journal, clock: Clock
) -> None:
    journal.of("t").readers.add(asyncio.Event())
    await opened(events, Cursor(OTHER, 7, NOW + 10))
    clock.now += 10_000
    others.answers["new"] = answer()
    await until(lambda: others.asked)
    assert others.asked[0] == ("new", clock.now - OVERLAP)
    others.asked.clear()
    others.answers.clear()
    clock.now += 1000
    for number in range(11):
        journal.ready(sandbox(number, at=clock.now))
    others.answers["another"] = answer(sandbox(0, at=clock.now), sandbox(100, at=clock.now + 1))
    await until(lambda: "sbx-100:ready" in journal.of("t"))
    assert "sbx-0:ready" not in journal.of("t")


async def test_a_node_whose_clock_is_ahead_puts_no_cursor_in_the_future(clock: Clock) -> None:
    journal = Journal(entries=10, memory=1 << 20, keep=3600.0, clock=clock)
    journal.ready(sandbox(1, at=NOW + 600))
    journal.recovered(known_since=NOW)
    journal.ready(sandbox(2))
    assert kept(journal.of("t")) == [("sbx-1:ready", NOW), ("sbx-2:ready", NOW)]


async def test_a_410_names_the_time_from_which_nothing_is_missing(clock: Clock) -> None:
    journal = Journal(entries=10, memory=1 << 20, keep=3600.0, clock=clock)
    journal.ready(sandbox(1, at=NOW - 600))
    journal.ready(sandbox(2, at=NOW - 100))
    journal.recovered(known_since=NOW - 300)
    with pytest.raises(CursorExpired) as expired:
        journal.of("t").place(Cursor(OTHER, 7, NOW - 500))
    assert expired.value.complete_since == NOW - 300
    assert (expired.value.resume.number, expired.value.resume.at) == (1, NOW - 180)


async def test_events_are_kept_for_as_long_as_gateways_need(clock: Clock) -> None:
    journal = Journal(entries=10, memory=1 << 20, keep=0.0, clock=clock)
    journal.recovered(known_since=0.0)
    journal.ready(sandbox(1))
    clock.now += OVERLAP
    journal.ready(sandbox(2))
    assert len(journal) == 2


def kept(events: TenantEvents) -> list[tuple[str, float]]:
    batch = events.read(events.first, wanted=EventFilter(), most=100, most_bytes=1 << 20)
    return [(entry.event.document.id, entry.at) for _, entry in batch.entries]
