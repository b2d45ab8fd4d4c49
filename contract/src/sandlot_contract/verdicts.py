"""How a command and a sandbox can end, and what commands are told of their sandbox's end. Every sidecar imports this.

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
    # Of an instance whose claim was not heard to be accepted: its sandbox has another one, or is still to get one.
    GIVEN_BACK = "given_back"


SANDBOX_VERDICTS: frozenset[str] = frozenset(SandboxVerdict)
# The command was lost with its sandbox: it has no result.
LOST: frozenset[str] = frozenset(
    (
        CommandVerdict.SANDBOX_ENDED,
        CommandVerdict.SANDBOX_BROKEN,
        CommandVerdict.SIDECAR_LOST,
        CommandVerdict.EVICTED,
    )
)
# Ends of a sandbox that neither its code nor its caller caused, and what its commands are told of them; of any other
# end they are told SANDBOX_ENDED.
INFRASTRUCTURE: dict[str, CommandVerdict] = {
    SandboxVerdict.EVICTED: CommandVerdict.EVICTED,
    SandboxVerdict.SIDECAR_LOST: CommandVerdict.SIDECAR_LOST,
    SandboxVerdict.NODE_LOST: CommandVerdict.SANDBOX_BROKEN,
    SandboxVerdict.IMAGE_PULL: CommandVerdict.SANDBOX_BROKEN,
    SandboxVerdict.SANDBOX_LOST: CommandVerdict.SANDBOX_BROKEN,
    SandboxVerdict.RESET_FAILED: CommandVerdict.SANDBOX_BROKEN,
    SandboxVerdict.START_FAILED: CommandVerdict.SANDBOX_BROKEN,
    SandboxVerdict.GIVEN_BACK: CommandVerdict.SANDBOX_BROKEN,
}
