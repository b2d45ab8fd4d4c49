"""Tells ends that the code caused from those that something outside the sandbox caused, which are none of its results."""

from __future__ import annotations

from typing import TypeVar

from sandlot.errors import SandboxLost
from sandlot.models import ExecResult, Exit, Verdict

End = TypeVar("End", ExecResult, Exit)

BY_CODE = frozenset(("exited", "oom", "init_killed"))  # verdicts of a sandbox that its own code has ended
KILLED = (
    137  # the exit code of a command whose sandbox its code has ended: as a shell says of a killed process
)


def own_end(result: End, sandbox_id: str) -> End:
    """Return the end of a command whose caller has waited for it.

    Raises SandboxLost, with `infrastructure` true, if its server was out of reach for too long (`client_gone`), or if
    someone else ended the command through the API (`killed`).
    """
    if result.verdict in (Verdict.CLIENT_GONE, Verdict.KILLED):
        raise SandboxLost(
            f"the command was ended from outside: {result.message or result.verdict}",
            verdict="sandbox_lost",
            sandbox_id=sandbox_id,
        )
    return result


def ended_by_code(error: SandboxLost) -> str | None:
    """Return what a model or a log reads of a sandbox that its own code has ended; None if anything else ended it."""
    return f"the sandbox has ended ({error.verdict}): {error}" if error.verdict in BY_CODE else None
