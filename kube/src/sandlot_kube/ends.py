"""The end of a Sandbox in its status, written once, by the gateway or the controller."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from sandlot_contract.verdicts import SandboxVerdict

from sandlot_kube.errors import KubeError
from sandlot_kube.objects import Sandbox, SandboxPhase

PERIOD = 60.0  # seconds: the ends of one minute are deleted together
LONGEST_MESSAGE = 4096
_STAYS = "an end stays as it was first told"  # in the message of the CRD's validation rule


class Ended(msgspec.Struct, frozen=True, gc=False):
    """The recorded end; `at` is RFC 3339 in UTC, such as `2026-01-31T12:00:00Z`.

    `started_at`: the same of the claim, if the resource may not tell it otherwise.
    """

    verdict: str
    at: str
    message: str | None = None
    exit_code: int | None = None
    started_at: str | None = None


def of(sandbox: Sandbox) -> Ended | None:
    """Return the recorded end, or None while the Sandbox lives."""
    status = sandbox.status
    if status.phase is not SandboxPhase.ENDED:
        return None
    verdict = status.verdict or SandboxVerdict.SANDBOX_LOST
    return Ended(verdict, status.ended_at or "", message=status.message, exit_code=status.exit_code)


def status(ended: Ended) -> dict[str, Any]:
    """Return the fields to merge into the status."""
    started = {} if ended.started_at is None else {"startedAt": ended.started_at}
    return {
        **started,
        "phase": SandboxPhase.ENDED,
        "verdict": ended.verdict,
        "message": ended.message[:LONGEST_MESSAGE] if ended.message else None,
        "exitCode": ended.exit_code,
        "endedAt": ended.at,
        "endedIn": ended.at[:16] + "Z",
        "conditions": [
            {
                "type": "Ready",
                "status": "False",
                "reason": "Ended",
                "message": ended.verdict,
                "lastTransitionTime": ended.at,
            }
        ],
    }


def period_end(ended_in: str) -> float:
    """Return the Unix time at which the minute named in a status is over. Raises ValueError."""
    return datetime.fromisoformat(ended_in).timestamp() + PERIOD


def was_first(error: KubeError) -> bool:
    """Return whether an end was rejected because the Sandbox has one already."""
    return error.status == 422 and _STAYS in error.message
