"""Which ends of ops the infrastructure caused."""

from __future__ import annotations

from typing import Any

from sandlot_contract.verdicts import CommandVerdict

from .failures import EnvdFailure, not_running

_LOST = (CommandVerdict.SANDBOX_BROKEN, CommandVerdict.SIDECAR_LOST)
_ENDED = (CommandVerdict.SANDBOX_ENDED, CommandVerdict.EVICTED)


def loss(op: dict[str, Any], *, sandbox_id: str) -> EnvdFailure | None:
    """Return the failure for an op that did not end by itself, and was not ended by its caller; else None."""
    verdict = op.get("verdict")
    text = str(op.get("message") or verdict)
    if verdict in _ENDED:
        return not_running(sandbox_id, text)
    if verdict in _LOST:
        return EnvdFailure("unavailable", f"the command was lost, not ended by itself: {text}")
    return None
