"""What the model reads of a command beside its output: an exit code where it had none, and that output is missing."""
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownParameterType=false
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from agents.sandbox.session.pty_types import PtyExecUpdate

from sandlot.models import ExecResult, Exit, Verdict

TIMED_OUT = 124  # as the program `timeout` ends, which models know
NOT_STARTED = 126  # as a shell says of a command that cannot run
DROPPED = b"[sandlot: some of the output was too much to keep]\n"


def exit_code_of(end: ExecResult | Exit) -> int:
    """Return the exit code of a command."""
    return TIMED_OUT if end.verdict == Verdict.TIMEOUT else end.exit_code


def ended_process(error: Exception, exit_code: int) -> PtyExecUpdate:
    """Return the end of a process that an error tells of."""
    return PtyExecUpdate(
        process_id=None, output=f"{error}\n".encode(), exit_code=exit_code, original_token_count=None
    )
