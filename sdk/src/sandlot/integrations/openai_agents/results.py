"""The exit codes that the model reads of commands that ended without one."""

from __future__ import annotations

from sandlot.models import ExecResult, Exit, Verdict

TIMED_OUT = 124  # as the program `timeout` ends, which models know
NOT_STARTED = 126  # as a shell says of a command that cannot run
KILLED = 137  # as a shell says of a process that was killed


def exit_code_of(end: ExecResult | Exit) -> int:
    """Return the exit code of a command."""
    return TIMED_OUT if end.verdict == Verdict.TIMEOUT else end.exit_code
