"""Builds the message by which a runner starts an op, and the op's standard input."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from ..core.op import Op

    class Defaults(Protocol):
        """Defaults for an op whose spec does not set them."""

        environment: dict[str, str]
        workdir: str | None
        user: str | int | None


SMALL_STDIN = 64 * 1024  # fits into a fresh pipe


def message(
    op: Op, defaults: Defaults, *, quiet: float, size: dict[str, int] | None = None
) -> dict[str, Any]:
    """Return the runner's message for an op.

    `quiet`: seconds by which the runner delays its report of the start. `size`: of its terminal, if it was changed.
    """
    spec = op.spec
    env = {**defaults.environment, **spec.env, "SANDLOT_OP": op.op_id}
    run: dict[str, Any] = {"env": env, "mark": op.op_id, "cwd": spec.cwd or defaults.workdir}
    user = defaults.user if spec.user is None else spec.user
    if user is not None:
        run["user"] = user
    if isinstance(spec.command, list):
        run["argv"] = spec.command
    else:
        run["shell"] = spec.command
        run["shell_kind"] = spec.shell
    limits = {}
    if spec.memory is not None:
        limits["memory"] = spec.memory
    if spec.pids is not None:
        limits["pids"] = spec.pids
    if limits:
        run["limits"] = limits
    if spec.pty is not None:
        run["pty"] = size or spec.pty
    elif quiet:
        run["quiet"] = quiet
    if op.trace is not None and op.trace.sampled:
        run["timed"] = True
    return {"run": run}


def input_of(data: bytes) -> int:
    """Return a descriptor from which a command reads these bytes."""
    if len(data) <= SMALL_STDIN:
        read, write = os.pipe2(os.O_CLOEXEC)
        os.write(write, data)
        os.close(write)
        return read
    memory = os.memfd_create("stdin", os.MFD_CLOEXEC)
    with memoryview(data) as view:
        written = 0
        while written < len(view):
            written += os.write(memory, view[written:])
    os.lseek(memory, 0, os.SEEK_SET)
    return memory
