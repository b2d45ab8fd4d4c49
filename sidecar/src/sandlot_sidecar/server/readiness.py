"""Runs a first command in a sandbox, which is ready only after that."""

from __future__ import annotations

import os

from sandlot_contract.frames import STDERR
from sandlot_contract.verdicts import CommandVerdict

from ..core.errors import SidecarError
from .spec import Spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .ops import Ops

TIMEOUT = 30.0  # seconds for the first command of a fresh sandbox

# The second one is for an image without a shell: `/` cannot be executed, which a command finds out in the sandbox.
COMMANDS: tuple[tuple[str | list[str], int], ...] = (("exit 0", 0), (["/"], 126))


async def run_first_command(ops: Ops, *, owned: bool) -> None:
    """Run it, in the owner's working directory if the sandbox is `owned`. Raises SidecarError."""
    text = ""
    for command, expected in COMMANDS:
        spec = Spec(command=command)
        spec.timeout = TIMEOUT
        if not owned:
            spec.cwd = "/"
        op, _ = ops.create(spec, op_id=None)
        op.detached = True
        await ops.watchers.wait_ended(op, timeout=TIMEOUT + 5.0)
        ops.table.drop(op)
        if op.verdict == CommandVerdict.EXITED and op.exit_code == expected:
            return
        reason = op.message or b"".join(op.log.output(STDERR)).decode("utf-8", "replace")[:500]
        text = f"({op.verdict}, exit code {op.exit_code}): {reason}"
        if op.verdict != CommandVerdict.START_FAILED:
            break
    raise SidecarError(f"the first command failed {text}")


def probe(*, shell: bool, environment: dict[str, str], user: str | int | None) -> dict[str, Any]:
    """Return the same for the executor, in a generation without an owner: a runner's message, and the exit code."""
    command, expected = COMMANDS[0 if shell else 1]
    mark = os.urandom(12).hex()
    run: dict[str, Any] = {"env": environment, "mark": mark, "cwd": "/", "quiet": TIMEOUT}
    run["shell" if isinstance(command, str) else "argv"] = command
    if user is not None:
        run["user"] = user
    return {"probe": run, "exit_code": expected}
