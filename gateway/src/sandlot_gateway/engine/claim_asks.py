"""Asks a sidecar to accept a claim, and again if the answer was lost and the sandbox is in use by then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from sandlot_contract.verdicts import SANDBOX_VERDICTS, SandboxVerdict

from sandlot_gateway.core.holds import Holds
from sandlot_gateway.core.slot import Hold, Loss
from sandlot_gateway.core.slots import ENDED_ELSEWHERE
from sandlot_gateway.sidecars import ClaimAnswer, ClaimOutcome, EndAnswer, Sidecars

_PATIENCE, _PAUSE = 3.0, 0.25  # seconds for a sidecar that restarts and refuses connections meanwhile
_NO_ANSWER = (ClaimOutcome.UNCERTAIN, ClaimOutcome.UNREACHABLE)
_USED_PATIENCE = 100.0  # for one whose sandbox is in use; the pods of a lost node are gone after 80 s

T = TypeVar("T")


async def ask(
    sidecars: Sidecars,
    holds: Holds,
    hold: Hold,
    claim: dict[str, Any],
    *,
    alone: bool,
    is_wanted: Callable[[], bool],
) -> tuple[ClaimAnswer, Loss | None]:
    """Return the sidecar's answer to the claim, and how the sandbox has ended if it was in use there and is lost.

    In another instance what its callers did would be lost without a word. `alone`: no other gateway can have heard of the
    claim. `is_wanted`: whether the sandbox has not been deleted meanwhile.
    """
    instance = hold.instance
    answer = await sidecars.claim(instance, claim)
    # Before the end is sent: what is heard of it may come before its answer, and is no end of the sandbox.
    if alone or answer.outcome != ClaimOutcome.UNCERTAIN or not holds.unanswered(hold):
        return answer, None
    # A caller may have used it through another gateway: in a second instance what it did would be lost.
    released = await _heard(
        lambda: sidecars.end(
            instance, verdict=SandboxVerdict.GIVEN_BACK, only_of=claim["sandbox_id"], only_unused=True
        ),
        lambda told: not told.unheard,
        patience=_PATIENCE,
    )
    if released != EndAnswer.OWNED:
        return answer, None
    if holds.asked_again(hold):
        answer = await _heard(
            lambda: sidecars.claim(instance, claim),
            lambda told: told.outcome not in _NO_ANSWER or hold.taken is not None or not is_wanted(),
            patience=_USED_PATIENCE,
        )
    return answer, _loss(hold, answer)


def _loss(hold: Hold, answer: ClaimAnswer) -> Loss | None:
    """Return how a sandbox that was in use has ended, by this answer to its repeated claim and what was heard."""
    if answer.outcome in (ClaimOutcome.CLAIMED, ClaimOutcome.TAKEN):  # the latter: another one was in use
        return None
    if hold.taken is not None:
        return hold.taken
    if answer.outcome == ClaimOutcome.STALE:
        return ENDED_ELSEWHERE
    if answer.outcome != ClaimOutcome.GONE:
        return None
    verdict = str(answer.state.get("verdict"))
    if verdict not in SANDBOX_VERDICTS:
        verdict = SandboxVerdict.SANDBOX_LOST
    return Loss(verdict, "it ended before its gateway had an answer to its claim")


async def _heard(call: Callable[[], Awaitable[T]], is_heard: Callable[[T], bool], *, patience: float) -> T:
    """Call until the sidecar has answered, anew for `patience` seconds; return the last call's result."""
    clock = asyncio.get_running_loop().time
    until = clock() + patience
    while True:
        told = await call()
        if is_heard(told) or clock() >= until:
            return told
        await asyncio.sleep(_PAUSE)
