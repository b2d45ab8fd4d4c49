"""What each surface says of each thing that ends a command or its sandbox: the rows of the table in docs/failures.md."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Row:
    """One cause; each answer as a user reads it."""

    cause: str
    sdk: str  # what `Sandbox.exec` returns or raises
    control: str  # the sandbox's status then, and its errorType
    rest: str  # HTTP status and `error` of Prime's `POST …/exec`, or its exit code
    rest_clients: str  # what the clients do with it that speak REST, since 0.2.27
    rpc: str  # the end event's exit code, or Connect's code, of `Start`
    rpc_clients: str  # what 0.5.1 does with it
    verifiers: str  # whether the turn counts for the rollout, or the rollout is masked

    def cells(self) -> list[str]:
        return [getattr(self, each.name) for each in fields(self)]


RUNNING = "RUNNING"
ROWS = (
    Row("the command ends by itself", "`exited`, 3", RUNNING, "200, 3", "result 3", "3", "result 3", "counts"),
    Row("a signal of its own", "`signaled`, 137", RUNNING, "200, 137", "result 137", "-9", "result -9", "counts"),
    Row("there is no such program", "`exited`, 127", RUNNING, "200, 127", "result 127", "127", "result 127", "counts"),
    Row("its time limit", "`timeout`", RUNNING, "408", "CommandTimeoutError", "deadline_exceeded", "CommandTimeoutError", "counts"),
    Row("its memory limit", "`oom`, 137", RUNNING, "200, 137", "result 137", "-9", "result -9", "counts"),
    Row("the disk's limit", "`disk_full`, 1", RUNNING, "200, 1", "result 1", "1", "result 1", "counts"),
    Row("the process limit", "`pids_limit`, 1", RUNNING, "200, 1", "result 1", "1", "result 1", "counts"),
    Row("the sandbox is deleted", "SandboxLost `sandbox_ended`", "TERMINATED", "502 sandbox_not_found", "SandboxNotRunningError", "not_found", "SandboxNotRunningError", "masked"),
    Row("the sandbox's deadline", "SandboxLost `sandbox_ended`", "TIMEOUT TIMEOUT", "502 sandbox_not_found", "SandboxTimeoutError or SandboxNotRunningError", "not_found", "SandboxTimeoutError or SandboxNotRunningError", "masked"),
    Row("the sandbox's init is killed", "SandboxLost `sandbox_broken`, infrastructure", RUNNING, "502 sandbox_broken", "APIError", "aborted", "APIError", "masked"),
    Row("the sandbox's executor is killed", "SandboxLost `sandbox_broken`, infrastructure", "ERROR SANDBOX_LOST", "502 sandbox_not_found or sandbox_broken", "SandboxNotRunningError or APIError", "aborted or not_found", "APIError or SandboxNotRunningError", "masked"),
    Row("the sidecar is killed", "SandboxLost `sidecar_lost`, infrastructure", "ERROR SIDECAR_LOST", "502 sidecar_lost or sandbox_not_found", "APIError or SandboxNotRunningError", "aborted or not_found", "APIError or SandboxNotRunningError", "masked"),
    Row("the sandbox is evicted", "SandboxLost `evicted`, infrastructure", "ERROR EVICTED", "502 sandbox_not_found", "SandboxNotRunningError", "not_found", "SandboxNotRunningError", "masked"),
)  # fmt: skip
