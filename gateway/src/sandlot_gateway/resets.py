"""Resets a sidecar for its next owner: one call for all backends, and what its answer means."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from sandlot_gateway.core.instances import Instance
from sandlot_gateway.data.pool import HttpPool, PoolError

_log = logging.getLogger(__name__)
RESET_TIMEOUT = 10.0  # seconds


class ResetOutcome(Enum):
    PROVEN = auto()  # the next generation is warm
    UNEQUAL = auto()  # it differs from a fresh one: the sidecar ends itself
    STALE = auto()  # it is at another generation: someone else has reset it
    LAST = auto()  # its node is being emptied: it ends with this owner
    UNANSWERED = auto()  # it may have been reset or not


@dataclass(frozen=True, slots=True)
class Reset:
    """The result; `state`: the state document of a reset one, else empty."""

    outcome: ResetOutcome
    state: dict[str, Any]


async def reset_for_next_owner(pool: HttpPool, instance: Instance, *, generation: int) -> Reset:
    """Reset the instance unless it is at another generation."""
    headers = [("authorization", f"Bearer {instance.token}"), ("content-type", "application/json")]
    body = b'{"keep_claim":false,"generation":%d}' % generation
    try:
        answer = await pool.fetch(
            instance.address, "POST", "/v1/reset", headers=headers, body=body, timeout=RESET_TIMEOUT
        )
        state = answer.json()
    except PoolError as error:
        _log.warning("no answer to a reset: %s", error, extra={"instance": instance.id})
        return Reset(ResetOutcome.UNANSWERED, {})
    if not isinstance(state, dict):
        state = {}
    if answer.status == 200 and state.get("equal") is True:
        return Reset(ResetOutcome.PROVEN, state)
    if answer.status == 409 and state.get("error") == "stale_generation":
        return Reset(ResetOutcome.STALE, {})
    if answer.status == 409 and state.get("error") == "last_generation":
        return Reset(ResetOutcome.LAST, {})
    why = state.get("proof") or state.get("message") or f"status {answer.status}"
    _log.warning("not equal to fresh after a reset: %s", why, extra={"instance": instance.id})
    return Reset(ResetOutcome.UNEQUAL, {})
