"""Defines how the control API reports each verdict: status, error type and reason."""

from __future__ import annotations

from dataclasses import dataclass

from sandlot_contract.statuses import Status
from sandlot_contract.verdicts import SandboxVerdict


@dataclass(frozen=True, slots=True)
class Ending:
    """What the control API reports for a verdict."""

    status: Status
    error_type: str | None
    reason: str


ENDINGS: dict[str, Ending] = {
    SandboxVerdict.DELETED: Ending(Status.TERMINATED, None, "Deleted"),
    SandboxVerdict.IDLE: Ending(Status.TERMINATED, None, "Idle Timeout"),
    SandboxVerdict.DEADLINE: Ending(Status.TIMEOUT, "TIMEOUT", "Timeout"),
    SandboxVerdict.OOM: Ending(Status.ERROR, "OOM_KILLED", "Out Of Memory"),
    SandboxVerdict.INIT_KILLED: Ending(Status.ERROR, "INIT_KILLED", "Init Killed"),
    SandboxVerdict.START_FAILED: Ending(Status.ERROR, "START_FAILED", "Start Failed"),
    SandboxVerdict.IMAGE_PULL: Ending(Status.ERROR, "IMAGE_PULL_FAILED", "Image Pull Failed"),
    SandboxVerdict.EVICTED: Ending(Status.ERROR, "EVICTED", "Evicted"),
    SandboxVerdict.NODE_LOST: Ending(Status.ERROR, "NODE_LOST", "Node Lost"),
    SandboxVerdict.SIDECAR_LOST: Ending(Status.ERROR, "SIDECAR_LOST", "Sidecar Lost"),
    SandboxVerdict.SANDBOX_LOST: Ending(Status.ERROR, "SANDBOX_LOST", "Sandbox Lost"),
    SandboxVerdict.RESET_FAILED: Ending(Status.ERROR, "RESET_FAILED", "Reset Failed"),
    SandboxVerdict.RUN_LOST: Ending(Status.ERROR, "RUN_LOST", "Run Lost"),
}


def ending(verdict: str, *, exit_code: int | None = None) -> Ending:
    """Return status, errorType and terminationReason of `verdict`; an unknown one is an ERROR under its own name."""
    if verdict == SandboxVerdict.EXITED:
        return Ending(Status.TERMINATED if exit_code in (0, None) else Status.ERROR, None, "Exited")
    known = ENDINGS.get(verdict)
    return known or Ending(Status.ERROR, verdict.upper(), verdict.replace("_", " ").title())
