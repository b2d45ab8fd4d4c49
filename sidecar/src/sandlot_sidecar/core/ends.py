"""How a sandbox ends: by whom, what that is called, and what its commands are told of it."""

from __future__ import annotations

from sandlot_contract.verdicts import INFRASTRUCTURE, SANDBOX_VERDICTS, CommandVerdict, SandboxVerdict


class End:
    """`failed`: the sandbox could not be built or made fresh."""

    __slots__ = ("failed", "message", "verdict")

    def __init__(self, verdict: str, message: str | None, *, failed: bool = False) -> None:
        self.verdict = verdict
        self.message = message
        self.failed = failed

    @property
    def cause(self) -> str:
        """What commands that run are told."""
        return INFRASTRUCTURE.get(self.verdict, CommandVerdict.SANDBOX_ENDED)


# Its owner's: what the claim asked for has come.

DEADLINE = End(SandboxVerdict.DEADLINE, "the sandbox reached its time limit")
IDLE = End(SandboxVerdict.IDLE, "nobody used the sandbox for its idle timeout")


def main_ended(exit_code: int | None) -> End:
    """The start command was all that it was for."""
    return End(SandboxVerdict.EXITED, f"the start command ended with exit code {exit_code}")


# Its gateway's, or its node's.


def unwanted(verdict: str | None) -> End:
    """The gateway knows of no such instance; or it knows how it has ended, as of a pod that is evicted."""
    if verdict is None or verdict not in SANDBOX_VERDICTS:
        verdict = SandboxVerdict.DELETED
    return End(verdict, "nobody wants this instance any more")


def terminated(*, owned: bool) -> End:
    """SIGTERM: the pod or the machine wants its place back."""
    return End(
        SandboxVerdict.EVICTED if owned else SandboxVerdict.DELETED, "the sidecar was told to terminate"
    )


# Its code's, or the infrastructure's.


def lost(what: str, *, out_of_memory: bool) -> End:
    """`out_of_memory`: the kernel has killed something of the container's own for that."""
    if out_of_memory:
        return End(SandboxVerdict.OOM, "the sandbox's container reached its memory limit")
    return End(SandboxVerdict.SANDBOX_LOST, what)


def executor_lost(*, out_of_memory: bool) -> End:
    """A container's runtime kills what is left in its groups, the executor too."""
    return lost("the sandbox's executor was lost", out_of_memory=out_of_memory)


def container_ended(*, out_of_memory: bool) -> End:
    """That of a pod, around the sandbox."""
    return lost("the sandbox's container has ended", out_of_memory=out_of_memory)


def init_given_up(*, mortal: bool, out_of_memory: bool) -> End:
    """`mortal`: code can kill the init, and then has done so."""
    if mortal:
        return End(
            SandboxVerdict.INIT_KILLED, "its commands killed the sandbox's first process again and again"
        )
    return lost("the sandbox's first process dies again and again", out_of_memory=out_of_memory)


# Nobody's fault but this instance's: it is of no use.


def not_built(why: str) -> End:
    return End(SandboxVerdict.START_FAILED, why, failed=True)


def not_restored(why: str) -> End:
    return End(SandboxVerdict.START_FAILED, f"the checkpoint could not be restored: {why}")


def not_reset(why: str) -> End:
    return End(SandboxVerdict.RESET_FAILED, why, failed=True)


def not_fresh(differences: list[str]) -> End:
    """The proof has found something of the owner before."""
    found = "; ".join(differences)
    return not_reset(f"the sandbox was not equal to a fresh one after the reset: {found}")
