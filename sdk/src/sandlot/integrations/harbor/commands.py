"""Runs one command of a trial: its own end is always a result, only a loss is an exception."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from sandlot._async.sandbox import AsyncSandbox
from sandlot.errors import StartFailed
from sandlot.integrations._lost_commands import KILLED, own_end
from sandlot.integrations.harbor.losses import SandboxEndedByCode, losses
from sandlot.models import ExecResult, Exit, Stderr, Stdout, Verdict

Emit = Callable[[str, Literal["stdout", "stderr"]], Awaitable[None]]

TIMED_OUT = 124  # as coreutils' timeout, and most environments of harbor
CANNOT_START = 126  # as Docker's exec, where the user or the working directory does not exist
# The home of the account that runs it: `$0` is its name, or its number.
HOME = """
case $0 in *[!0-9]*) name=$0 ;; *) name=$(id -un 2>/dev/null) || exit ;; esac
case $name in *[!A-Za-z0-9._-]*) exit ;; esac
eval "echo ~$name"
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """Output and exit code of a command."""

    stdout: str
    stderr: str
    code: int
    with_sandbox: bool = False  # code of the trial has ended the whole sandbox


async def run(
    box: AsyncSandbox,
    command: str,
    *,
    cwd: str | None,
    env: Mapping[str, str],
    timeout: float | None,
    user: str | int | None,
    emit: Emit | None,
) -> Ended:
    """Run a command in the image's shell; `emit` gets its output while it runs.

    Exit code 137 where the code has ended the whole sandbox. Raises SandboxInfrastructureError.
    """
    try:
        with losses("command"):
            if emit is None:
                result = await box.exec(command, cwd=cwd, env=env or None, timeout=timeout, user=user)
            else:
                result = await _streamed(
                    box, command, cwd=cwd, env=env, timeout=timeout, user=user, emit=emit
                )
            own_end(result, box.id)
    except StartFailed as error:
        return Ended("", f"{error}\n", CANNOT_START)
    except SandboxEndedByCode as error:
        return Ended("", f"{error}\n", KILLED, with_sandbox=True)
    code = TIMED_OUT if result.verdict == Verdict.TIMEOUT else result.exit_code
    return Ended(result.stdout, result.stderr, code)


async def home(box: AsyncSandbox, user: str | int) -> str:
    """Return the home of an account of the sandbox; "/" for a number without one, as Docker does."""
    try:
        with losses("command"):
            result = await box.exec(["sh", "-c", HOME, str(user)], user=user, cwd="/", timeout=60)
    except (StartFailed, SandboxEndedByCode):  # no such account, no sandbox: its command will say so
        return "/"
    found = result.stdout.strip()
    return found if found.startswith("/") else "/"


async def _streamed(
    box: AsyncSandbox,
    command: str,
    *,
    cwd: str | None,
    env: Mapping[str, str],
    timeout: float | None,
    user: str | int | None,
    emit: Emit,
) -> ExecResult:
    parts: dict[type[Stdout] | type[Stderr], list[str]] = {Stdout: [], Stderr: []}
    end: Exit | None = None
    stream = await box.exec(command, cwd=cwd, env=env or None, timeout=timeout, user=user, stream=True)
    async with stream:
        async for event in stream:
            if isinstance(event, Exit):
                end = event
            elif event.text:
                parts[type(event)].append(event.text)
                await emit(event.text, "stdout" if isinstance(event, Stdout) else "stderr")
    assert end is not None  # a stream ends with it, or raises
    return ExecResult(
        stdout="".join(parts[Stdout]),
        stderr="".join(parts[Stderr]),
        exit_code=end.exit_code,
        verdict=end.verdict,
        op_id=end.op_id,
        message=end.message,
    )
