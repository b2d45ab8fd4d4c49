"""Every phase of a slot meets everything that can happen to it; see sandlot_gateway/core/slots.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sandlot_contract.template import Template
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.core.ready import first_come
from sandlot_gateway.core.slot import Hold, Loss, Phase, ReportOutcome
from sandlot_gateway.core.slots import Slots

TEMPLATE = Template("host")
INSTANCE = Instance("i-1", TEMPLATE, "unix:/1", "token")
LOSS = Loss("node_lost", "its node is gone")

# Of generation 2, each by its name; what is claimed or owned is sb-mine's.
MAKE: dict[str, Callable[[Slots], object]] = {
    "absent": lambda slots: None,
    "unheard": lambda slots: slots.report_warm(INSTANCE, 2),
    "warm": lambda slots: (slots.report_warm(INSTANCE, 2), slots.wait(INSTANCE)),
    "granted": lambda slots: (slots.report_warm(INSTANCE, 2), slots.grant(INSTANCE)),
    "claiming": lambda slots: claimed(slots),
    "owned": lambda slots: slots.report_owned(INSTANCE, 2, "sb-mine"),
    "ending": lambda slots: (MAKE["owned"](slots), slots.end("i-1", "sb-mine")),
    "lost": lambda slots: slots.lost("i-1", LOSS),
}
LATE, KNOWN, NEWS, IMPOSSIBLE = (
    ReportOutcome.LATE,
    ReportOutcome.KNOWN,
    ReportOutcome.NEWS,
    ReportOutcome.IMPOSSIBLE,
)


def made(name: str) -> Slots:
    slots = Slots(rank=first_come())
    MAKE[name](slots)
    return slots


def phase(slots: Slots) -> Phase | None:
    slot = slots.get("i-1")
    assert (slot is not None and slot.phase is Phase.WARM) == ("i-1" in slots.warm)
    return slot.phase if slot is not None else None


@pytest.mark.parametrize(
    ("name", "older", "same", "newer"),
    [
        ("absent", NEWS, NEWS, NEWS),
        ("unheard", LATE, NEWS, NEWS),
        ("warm", LATE, KNOWN, KNOWN),
        ("granted", LATE, LATE, NEWS),
        ("claiming", LATE, LATE, NEWS),
        ("owned", LATE, LATE, NEWS),
        ("ending", LATE, LATE, NEWS),
        ("lost", LATE, LATE, LATE),
    ],
)
def test_a_word_of_one_that_is_ready(
    name: str, older: ReportOutcome, same: ReportOutcome, newer: ReportOutcome
) -> None:
    for generation, heard in ((1, older), (2, same), (3, newer)):
        slots = made(name)
        before = phase(slots)
        assert slots.report_warm(INSTANCE, generation) is heard
        slot = slots.get("i-1")
        if heard is NEWS:
            assert slot is not None
            assert (slot.phase, slot.generation, slot.sandbox_id) == (Phase.UNREPORTED, generation, None)
        else:
            assert phase(slots) is before


@pytest.mark.parametrize(
    ("name", "older", "mine", "anothers", "newer_mine", "newer"),
    [
        ("absent", NEWS, NEWS, NEWS, NEWS, NEWS),
        ("unheard", LATE, NEWS, NEWS, NEWS, NEWS),
        ("warm", LATE, NEWS, NEWS, NEWS, NEWS),
        ("granted", LATE, NEWS, NEWS, NEWS, NEWS),
        ("claiming", LATE, LATE, NEWS, LATE, NEWS),
        ("owned", LATE, KNOWN, IMPOSSIBLE, KNOWN, NEWS),
        ("ending", LATE, LATE, NEWS, LATE, NEWS),
        ("lost", LATE, LATE, LATE, LATE, LATE),
    ],
)
def test_a_word_of_one_that_has_an_owner(
    name: str,
    older: ReportOutcome,
    mine: ReportOutcome,
    anothers: ReportOutcome,
    newer_mine: ReportOutcome,
    newer: ReportOutcome,
) -> None:
    for generation, owner, heard in (
        (1, "sb-mine", older),
        (2, "sb-mine", mine),
        (2, "sb-another", anothers),
        (3, "sb-mine", newer_mine),
        (3, "sb-another", newer),
    ):
        slots = made(name)
        before = phase(slots)
        assert slots.report_owned(INSTANCE, generation, owner) is heard
        if heard in (NEWS, KNOWN):
            slot = slots.get("i-1")
            assert slot is not None
            assert (slot.phase, slot.generation, slots.owner("i-1")) == (Phase.OWNED, generation, owner)
        else:
            assert phase(slots) is before


@pytest.mark.parametrize("name", MAKE)
def test_a_loss(name: str) -> None:
    slots = made(name)
    before = phase(slots)
    was = slots.lost("i-1", LOSS)
    assert (was.phase if was is not None else None) is before
    kept = name in ("granted", "claiming")
    assert (slots.get("i-1") is not None) == kept, "one that is being claimed is kept until its answer"
    assert slots.report_warm(INSTANCE, 9) is LATE


def granted(slots: Slots) -> Hold:
    slots.report_warm(INSTANCE, 2)
    return slots.grant(INSTANCE)


def claimed(slots: Slots) -> Hold:
    hold = granted(slots)
    assert slots.holds.claim(hold, "sb-mine", tenant="t") is not None
    return hold


def test_the_end_of_an_owner_is_begun_once() -> None:
    for name in MAKE:
        slots = made(name)
        assert slots.end("i-1", "sb-another") is None
        assert (slots.end("i-1", "sb-mine") is not None) == (name == "owned")
        assert slots.end("i-1", "sb-mine") is None


def test_one_that_was_reset_is_of_the_next_generation() -> None:
    slots = made("ending")
    slots.was_reset("i-1", 1)
    assert phase(slots) is Phase.ENDING, "that was another end"
    slots.was_reset("i-1", 2)
    assert phase(slots) is Phase.UNREPORTED
    assert slots.report_warm(INSTANCE, 2) is LATE
    assert slots.report_warm(INSTANCE, 3) is NEWS
    slots = made("ending")
    assert slots.report_warm(INSTANCE, 3) is NEWS
    slots.grant(INSTANCE)
    slots.was_reset("i-1", 2)
    assert phase(slots) is Phase.CLAIMING, "its word was faster, and somebody has it"


def test_one_that_was_taken_away_is_forgotten_unless_it_has_gone_on() -> None:
    slots = made("ending")
    slots.gone("i-1")
    assert slots.get("i-1") is None
    slots = made("ending")
    slots.report_owned(INSTANCE, 3, "sb-another")
    slots.gone("i-1")
    assert slots.owner("i-1") == "sb-another"


def test_nobody_gets_one_that_is_discarded() -> None:
    for name in MAKE:
        slots = made(name)
        assert slots.discard("i-1") == (name != "ending")
        assert phase(slots) is (Phase.ENDING if name not in ("absent", "lost") else None)
        assert slots.take(TEMPLATE.key) is None


def test_no_more_lost_ones_are_remembered_than_a_bound() -> None:
    slots = Slots(rank=first_come())
    for number in range(10_500):
        slots.lost(f"i-{number}", LOSS)
    assert len(slots._lost) == 10_000
