"""Every phase of an instance meets everything that can happen to it; see sandlot_sidecar/core/instance.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sandlot_contract.verdicts import SANDBOX_VERDICTS
from sandlot_sidecar.core import ends
from sandlot_sidecar.core.errors import ApiError
from sandlot_sidecar.core.instance import CONTRACT_PHASES, InstanceState, Outcome, Phase
from sandlot_sidecar.core.record import Record

from tests.sidecar.instance_states import (
    ANOTHERS,
    FILES,
    MAKE,
    MINE,
    STRANGERS,
    claim_of,
    made,
    take,
)

NEWS, KNOWN, LATE, IMPOSSIBLE = (
    Outcome.NEWS,
    Outcome.KNOWN,
    Outcome.LATE,
    Outcome.IMPOSSIBLE,
)


EVENTS: dict[str, Callable[[InstanceState], object]] = {
    "built": lambda life: life.built(),
    "claim": lambda life: take(life, MINE),
    "claim of files": lambda life: take(life, FILES),
    "another's claim": lambda life: take(life, ANOTHERS),
    "stranger's claim": lambda life: take(life, STRANGERS),
    "claimed": lambda life: life.claimed(),
    "claim failed": lambda life: life.claim_failed(),
    "restore": lambda life: life.restore(),
    "restored": lambda life: life.restored(generation=1),
    "reset": lambda life: life.reset(keep_claim=False, generation=None, overlay=True),
    "reset for its owner": lambda life: life.reset(keep_claim=True, generation=None, overlay=True),
    "emptied": lambda life: life.emptied(),
    "end": lambda life: life.end(ends.IDLE, generation=1),
    "failure": lambda life: life.end(ends.not_reset("no")),
    "gate": lambda life: life.gate(),
    "owned": lambda life: life.owned(),
}
# What is heard or returned, or the code of the refusal, and the phase after it where that is another; events as above.
TABLE: dict[str, str] = {
    "starting": (
        "news>warm starting starting starting starting impossible impossible conflict impossible starting "
        "starting impossible news>ended news>failed starting not_claimed"
    ),
    "warm": (
        "impossible true>claiming true>claiming true>claiming true>claiming impossible impossible conflict "
        "impossible none>resetting none>resetting impossible news>ended news>failed starting not_claimed"
    ),
    "claiming": (
        "impossible impossible:starting impossible:starting impossible:starting impossible:starting news>claimed "
        "news>warm conflict impossible starting starting impossible news>ended news>failed starting not_claimed"
    ),
    "awaiting": (
        "impossible already_claimed false already_claimed already_claimed impossible impossible none>restoring "
        "impossible none>resetting conflict impossible news>ended news>failed starting claim"
    ),
    "restoring": (
        "impossible already_claimed false already_claimed already_claimed impossible impossible conflict "
        "news>claimed none>resetting conflict impossible news>ended news>failed starting claim"
    ),
    "claimed": (
        "impossible false already_claimed already_claimed already_claimed impossible impossible conflict "
        "impossible none>resetting claim>resetting impossible news>ended news>failed none claim"
    ),
    "resetting": (
        "impossible false already_claimed already_claimed already_claimed impossible impossible conflict "
        "impossible starting starting news>starting news>ended news>failed starting not_claimed"
    ),
    "warm again": (
        "impossible true>claiming true>claiming true>claiming bound impossible impossible conflict late "
        "none>resetting none>resetting impossible late news>failed starting not_claimed"
    ),
    "claiming again": (
        "impossible impossible:starting impossible:starting impossible:starting impossible:starting news>claimed "
        "news>warm conflict late starting starting impossible late news>failed starting not_claimed"
    ),
    "resetting for its owner": (
        "impossible false already_claimed already_claimed already_claimed impossible impossible conflict "
        "impossible starting starting known>starting news>ended news>failed starting not_claimed"
    ),
    "ended": "late ended ended ended ended late late ended late ended ended late known known ended ended",
    "failed": "late ended ended ended ended late late ended late ended ended late known known ended ended",
}


def outcome(life: InstanceState, happens: Callable[[InstanceState], object]) -> str:
    """In the words of the table."""
    phase = life.phase
    try:
        result = happens(life)
    except ApiError as error:
        text = f"impossible:{error.code}" if life.impossible else error.code
    else:
        if isinstance(result, Outcome):
            text = result.name.lower()
            assert (result is IMPOSSIBLE) == (life.impossible is not None)
        else:
            text = "claim" if isinstance(result, dict) else str(result).lower()
    return text if life.phase is phase else f"{text}>{life.phase.name.lower()}"


def test_the_table_has_every_pair() -> None:
    assert set(TABLE) == set(MAKE)
    assert {len(row.split()) for row in TABLE.values()} == {len(EVENTS)}
    assert {made(name).phase for name in MAKE} == set(Phase) == set(CONTRACT_PHASES)


@pytest.mark.parametrize("name", TABLE)
def test_what_comes_of_it(name: str) -> None:
    for (event, happens), expected in zip(EVENTS.items(), TABLE[name].split(), strict=True):
        life = made(name)
        before = life.record.document()
        assert outcome(life, happens) == expected, (name, event)
        if ">" not in expected and expected != "news":
            assert life.record.document() == before, (name, event)


def test_a_reset_begins_the_next_generation_and_keeps_nothing_of_its_owner() -> None:
    life = made("resetting")
    assert life.emptied() is NEWS
    assert (life.record.generation, life.record.claim, life.record.claimed_at) == (2, None, None)
    assert life.built() is NEWS
    assert life.phase is Phase.WARM


def test_a_reset_for_its_owner_goes_on() -> None:
    life = made("resetting for its owner")
    assert life.emptied() is KNOWN
    assert life.built() is NEWS
    assert (life.phase, life.record.generation, life.record.claim) == (Phase.CLAIMED, 1, MINE)


def test_an_owner_of_before_a_restart_has_it_again() -> None:
    record = Record()
    record.claim = MINE
    life = InstanceState(record)
    assert take(life, MINE) is False
    assert life.built() is NEWS
    assert life.phase is Phase.CLAIMED


def test_one_that_has_ended_before_a_restart_is_over() -> None:
    record = Record()
    record.verdict = "deadline"
    life = InstanceState(record)
    assert life.built() is LATE
    assert life.end(ends.IDLE) is KNOWN
    assert record.verdict == "deadline"


def test_news_of_an_earlier_generation_changes_nothing() -> None:
    life = made("resetting")
    life.emptied()
    life.built()
    take(life, FILES)
    life.claimed()
    life.restore()
    assert life.restored(generation=1) is LATE
    assert life.end(ends.DEADLINE, generation=1) is LATE
    assert life.phase is Phase.RESTORING
    assert life.restored(generation=2) is NEWS
    assert life.end(ends.DEADLINE, generation=2) is NEWS
    assert (life.record.verdict, life.record.message) == ("deadline", "the sandbox reached its time limit")


@pytest.mark.parametrize("event", ["claim", "reset"])
def test_who_means_another_generation_is_told_which_it_is(event: str) -> None:
    life = made("warm")
    ask: dict[str, Callable[[], object]] = {
        "claim": lambda: life.claim(MINE, generation=2, now=5.0),
        "reset": lambda: life.reset(keep_claim=False, generation=2, overlay=True),
    }
    with pytest.raises(ApiError) as caught:
        ask[event]()
    error = caught.value
    assert (error.status, error.code, error.field) == (409, "stale_generation", "generation")
    assert error.extra == {"generation": 1}
    assert life.phase is Phase.WARM


def test_without_an_overlay_nothing_is_reset() -> None:
    life = made("claimed")
    with pytest.raises(ApiError, match="not an overlay"):
        life.reset(keep_claim=False, generation=None, overlay=False)
    assert life.phase is Phase.CLAIMED


@pytest.mark.parametrize(
    ("name", "conditions", "ends_it"),
    [
        ("warm", {"only_unclaimed": True}, True),
        ("claimed", {"only_unclaimed": True}, False),
        ("claiming", {"only_unclaimed": True}, False),
        ("claimed", {"only_of": "sb-mine"}, True),
        ("claimed", {"only_of": "sb-another"}, False),
        ("warm", {"only_of": "sb-another"}, True),
    ],
)
def test_an_end_that_is_not_for_its_owner_is_refused(
    name: str, conditions: dict[str, Any], ends_it: bool
) -> None:
    life = made(name)
    phase = life.phase
    if ends_it:
        assert life.end(ends.unwanted(None), **conditions) is NEWS
        return
    with pytest.raises(ApiError) as caught:
        life.end(ends.unwanted(None), **conditions)
    assert (caught.value.status, caught.value.code, life.phase) == (409, "claimed", phase)


@pytest.mark.parametrize("event", ["none", "a use", "a reset", "a restart"])
def test_only_an_owner_that_has_not_used_it_lets_it_end_as_unused(event: str) -> None:
    """After a restart nobody knows."""
    life = made("claimed")
    if event == "a use":
        life.gate()
    elif event == "a reset":
        life.gate()
        life.reset(keep_claim=False, generation=None, overlay=True)
        life.emptied()
        life.built()
        take(life, MINE)
        life.claimed()
    elif event == "a restart":
        life = InstanceState(life.record)
        life.built()
    if event in ("none", "a reset"):
        assert life.end(ends.unwanted(None), only_unused=True) is NEWS
        return
    with pytest.raises(ApiError) as caught:
        life.end(ends.unwanted(None), only_unused=True)
    assert (caught.value.status, caught.value.code, life.phase) == (409, "claimed", Phase.CLAIMED)


@pytest.mark.parametrize(("tenant", "told"), [("t", {"sandbox_id": "sb-mine"}), ("u", {}), (None, {})])
def test_only_its_own_tenant_is_told_who_has_it(tenant: str | None, told: dict[str, str]) -> None:
    life = made("claimed")
    with pytest.raises(ApiError) as caught:
        take(life, claim_of("sb-another", tenant=tenant))
    assert (caught.value.status, caught.value.code, caught.value.extra) == (409, "already_claimed", told)


@pytest.mark.parametrize(
    ("end", "verdict", "cause"),
    [
        (ends.DEADLINE, "deadline", "sandbox_ended"),
        (ends.IDLE, "idle", "sandbox_ended"),
        (ends.main_ended(3), "exited", "sandbox_ended"),
        (ends.unwanted(None), "deleted", "sandbox_ended"),
        (ends.unwanted("evicted"), "evicted", "evicted"),
        (ends.unwanted("nonsense"), "deleted", "sandbox_ended"),
        (ends.terminated(owned=True), "evicted", "evicted"),
        (ends.terminated(owned=False), "deleted", "sandbox_ended"),
        (ends.executor_lost(out_of_memory=True), "oom", "sandbox_ended"),
        (ends.executor_lost(out_of_memory=False), "sandbox_lost", "sandbox_broken"),
        (ends.container_ended(out_of_memory=False), "sandbox_lost", "sandbox_broken"),
        (ends.init_given_up(mortal=True, out_of_memory=True), "init_killed", "sandbox_ended"),
        (ends.init_given_up(mortal=False, out_of_memory=True), "oom", "sandbox_ended"),
        (ends.init_given_up(mortal=False, out_of_memory=False), "sandbox_lost", "sandbox_broken"),
        (ends.not_built("no"), "start_failed", "sandbox_broken"),
        (ends.not_restored("no"), "start_failed", "sandbox_broken"),
        (ends.not_fresh(["a file"]), "reset_failed", "sandbox_broken"),
    ],
)
def test_what_an_end_is_called_and_what_commands_are_told(end: ends.End, verdict: str, cause: str) -> None:
    assert (end.verdict, end.cause) == (verdict, cause)
    assert end.verdict in SANDBOX_VERDICTS
    assert end.failed == (end.verdict == "reset_failed" or end.message == "no")
