"""Tells ends that the code caused from those that something outside the sandbox caused, which are none of its results."""

from __future__ import annotations

from typing import TypeVar

from sandlot.errors import SandboxLost
from sandlot.models import ExecResult, Exit, Verdict

End = TypeVar("End", ExecResult, Exit)

BY_CODE = frozenset(("exited", "oom", "init_killed"))  # verdicts of a sandbox that its own code has ended
# The exit code of a command whose sandbox its code has ended: as a shell says of a killed process.
KILLED = 137


class EndedByCode(Exception):
    """The code has ended its own sandbox, which is one of its results; a model or a log reads the message."""

    def __init__(self, message: str, verdict: str) -> None:
        super().__init__(message)
        self.verdict = verdict


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


def ended_by_code(message: str, verdict: str) -> EndedByCode | None:
    """Return what to raise or tell of a sandbox that has ended; None if anything but its own code ended it."""
    if verdict not in BY_CODE:
        return None
    return EndedByCode(f"the sandbox has ended ({verdict}): {message}", verdict)
