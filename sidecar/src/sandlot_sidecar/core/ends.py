"""The ways a sandbox can end, each with its verdict, its message and the verdict of its running commands.

Also the conditions under which an end applies.
"""

from __future__ import annotations

from sandlot_contract.verdicts import (
    GRACEFUL,
    INFRASTRUCTURE,
    SANDBOX_VERDICTS,
    CommandVerdict,
    SandboxVerdict,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypedDict

    class Conditions(TypedDict, total=False):
        """`generation`: the one that the end is about.

        It does not apply to an instance with an owner (`only_unclaimed`), with another one than `only_of`, or with one
        that has used it (`only_unused`).
        """

        generation: int | None
        only_unclaimed: bool
        only_of: str | None
        only_unused: bool


class End:
    """The end of a sandbox. `failed`: it could not be built or reset."""

    __slots__ = ("failed", "message", "verdict")

    def __init__(self, verdict: str, message: str | None, *, failed: bool = False) -> None:
        self.verdict = verdict
        self.message = message
        self.failed = failed

    @property
    def cause(self) -> str:
        """The verdict of commands that were running."""
        return INFRASTRUCTURE.get(self.verdict, CommandVerdict.SANDBOX_ENDED)

    @property
    def graceful(self) -> bool:
        """Whether the start command gets its stop signal."""
        return self.verdict in GRACEFUL


def is_late(conditions: Conditions, present: int) -> bool:
    """Return whether the end is about another generation than the present one."""
    return conditions.get("generation") not in (None, present)


def is_kept(conditions: Conditions, claim: dict[str, Any] | None, *, used: bool) -> bool:
    """Return whether the instance's owner, if there is one, keeps it from the end. `used`: it has used the instance."""
    if claim is None:
        return False
    if conditions.get("only_unclaimed") or (conditions.get("only_unused") and used):
        return True
    return conditions.get("only_of") not in (None, claim["sandbox_id"])


# Ends that the claim asked for.

DEADLINE = End(SandboxVerdict.DEADLINE, "the sandbox reached its time limit")
IDLE = End(SandboxVerdict.IDLE, "the sandbox was unused for its idle timeout")


def main_ended(exit_code: int | None) -> End:
    """Return the end for a start command that exited, where the claim ties the sandbox to it (`meta.main`)."""
    return End(SandboxVerdict.EXITED, f"the start command ended with exit code {exit_code}")


# Ends by the gateway or the node.

ORPHANED = End(
    SandboxVerdict.DELETED,
    "the caller left before create was answered and did not come back, nor used the sandbox",
)


def unwanted(verdict: str | None) -> End:
    """Return the end for a 410 from the gateway; its verdict is known where, say, the pod was evicted."""
    if verdict is None or verdict not in SANDBOX_VERDICTS:
        verdict = SandboxVerdict.DELETED
    return End(verdict, "the gateway has released this instance")


def terminated(*, owned: bool) -> End:
    """Return the end for SIGTERM: the pod is deleted or the machine shuts down."""
    return End(SandboxVerdict.EVICTED if owned else SandboxVerdict.DELETED, "the sidecar received SIGTERM")


# Ends by user code or the infrastructure.


def lost(what: str, *, out_of_memory: bool) -> End:
    """Return the end for a lost part. `out_of_memory`: the OOM killer hit a process of the container itself."""
    if out_of_memory:
        return End(SandboxVerdict.OOM, "the sandbox's container reached its memory limit")
    return End(SandboxVerdict.SANDBOX_LOST, what)


def executor_lost(*, out_of_memory: bool) -> End:
    """Return the end for a lost executor, which a container runtime kills together with the container's cgroups."""
    return lost("the sandbox's executor was lost", out_of_memory=out_of_memory)


def container_ended(*, out_of_memory: bool) -> End:
    """Return the end for the container in a pod that the sandbox ran in."""
    return lost("the sandbox's container has ended", out_of_memory=out_of_memory)


def init_given_up(*, mortal: bool, out_of_memory: bool) -> End:
    """Return the end for an init that keeps dying. `mortal`: user code can kill the init, so it did."""
    if mortal:
        return End(SandboxVerdict.INIT_KILLED, "commands of the sandbox kept killing its init process")
    return lost("the sandbox's init process keeps dying", out_of_memory=out_of_memory)


# Failures of this instance.


def not_built(why: str) -> End:
    return End(SandboxVerdict.START_FAILED, why, failed=True)


def not_restored(why: str) -> End:
    return End(SandboxVerdict.START_FAILED, f"cannot restore the checkpoint: {why}")


def not_reset(why: str) -> End:
    return End(SandboxVerdict.RESET_FAILED, why, failed=True)


def not_fresh(differences: list[str]) -> End:
    """Return the end for a reset whose proof found leftovers of the previous owner."""
    found = "; ".join(differences)
    return not_reset(f"the reset sandbox differs from a fresh one: {found}")
