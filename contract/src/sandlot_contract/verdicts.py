"""Defines the verdicts of commands and sandboxes. Every sidecar imports this.

docs/sidecar-contract.md says what each verdict means, docs/failures.md what each surface makes of it.
"""

from __future__ import annotations

from enum import StrEnum


class CommandVerdict(StrEnum):
    EXITED = "exited"
    SIGNALED = "signaled"
    TIMEOUT = "timeout"
    OOM = "oom"
    DISK_FULL = "disk_full"
    PIDS_LIMIT = "pids_limit"
    KILLED = "killed"
    CLIENT_GONE = "client_gone"
    START_FAILED = "start_failed"
    SANDBOX_ENDED = "sandbox_ended"
    SANDBOX_BROKEN = "sandbox_broken"
    SIDECAR_LOST = "sidecar_lost"
    EVICTED = "evicted"


class SandboxVerdict(StrEnum):
    DELETED = "deleted"
    DEADLINE = "deadline"
    IDLE = "idle"
    EXITED = "exited"
    OOM = "oom"
    INIT_KILLED = "init_killed"
    START_FAILED = "start_failed"
    IMAGE_PULL = "image_pull"
    EVICTED = "evicted"
    NODE_LOST = "node_lost"
    SIDECAR_LOST = "sidecar_lost"
    SANDBOX_LOST = "sandbox_lost"
    RESET_FAILED = "reset_failed"
    RUN_LOST = "run_lost"
    # For an instance whose claim was not confirmed: its sandbox has another instance, or will get one.
    GIVEN_BACK = "given_back"


SANDBOX_VERDICTS: frozenset[str] = frozenset(SandboxVerdict)
# Ends that give the start command its stop signal and its grace; for others there is no time, or no sandbox.
GRACEFUL: frozenset[str] = frozenset((SandboxVerdict.DELETED, SandboxVerdict.DEADLINE, SandboxVerdict.IDLE))
# The command was lost with its sandbox and has no result.
LOST: frozenset[str] = frozenset(
    (
        CommandVerdict.SANDBOX_ENDED,
        CommandVerdict.SANDBOX_BROKEN,
        CommandVerdict.SIDECAR_LOST,
        CommandVerdict.EVICTED,
    )
)
# Sandbox verdicts that neither code nor caller caused -> verdict of its commands; for any other end of a sandbox they
# get SANDBOX_ENDED.
INFRASTRUCTURE: dict[str, CommandVerdict] = {
    SandboxVerdict.EVICTED: CommandVerdict.EVICTED,
    SandboxVerdict.SIDECAR_LOST: CommandVerdict.SIDECAR_LOST,
    SandboxVerdict.NODE_LOST: CommandVerdict.SANDBOX_BROKEN,
    SandboxVerdict.IMAGE_PULL: CommandVerdict.SANDBOX_BROKEN,
    SandboxVerdict.SANDBOX_LOST: CommandVerdict.SANDBOX_BROKEN,
    SandboxVerdict.RESET_FAILED: CommandVerdict.SANDBOX_BROKEN,
    SandboxVerdict.START_FAILED: CommandVerdict.SANDBOX_BROKEN,
    SandboxVerdict.RUN_LOST: CommandVerdict.SANDBOX_BROKEN,
    SandboxVerdict.GIVEN_BACK: CommandVerdict.SANDBOX_BROKEN,
}
