# This file is auto-generated from sdk/src/sandlot/_async/contexts.py by tools/async_to_sync.py: do not change it.
"""Python contexts of a sandbox: start one, or attach to one that another client has started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.resources import files
from typing import Any

from sandlot._protocol import calls, cells
from sandlot._sync.handle import Handle
from sandlot._sync.python import PythonContext
from sandlot._sync.stream import OpStream
from sandlot.errors import SandlotError
from sandlot.units import parse_size


@cache
def driver() -> str:
    """Return the program of a context, as the gateway sends it, too."""
    copy = files("sandlot._protocol").joinpath("python_driver.py").read_text(encoding="utf-8")
    return copy.partition("\n")[2]  # without the line that says what it is a copy of


def is_driver(command: Sequence[str]) -> bool:
    """Return whether this command is the program of a context, of any version."""
    return command[1:2] == ["-c"] and command[2].partition("\n")[0] == driver().partition("\n")[0]


class PythonContexts(Handle):
    """Starts and finds Python contexts; a base class of `Sandbox`."""

    def python(
        self,
        *,
        interpreter: str = "python3",
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | int | None = None,
        memory: int | str | None = None,
        context_id: str | None = None,
        wait: float = 60.0,
    ) -> PythonContext:
        """Start a process that runs cells of Python code in one namespace, and wait until it can.

        It needs Python 3.8 or later in the image, as `interpreter`, and no package. It runs until it is closed, or its
        sandbox ends. `memory` (bytes, or "512MiB") is the most that the cell that runs, what earlier ones have left and
        their programs take together, below the sandbox's own limit: beyond it the cell has `died`, and the context
        ends, until `restart` starts a new one with the same limit.

        A second call with the same `context_id` attaches to it. Raises StartFailed if that Python does not run,
        WaitTimeout after `wait` seconds, OpConflict if another command has this id.
        """
        op = calls.op_id_or_new(context_id)
        document = calls.op_document(
            op_id=op,
            command=[interpreter, "-c", driver(), str(cells.TOTAL)],
            cwd=cwd,
            env=env,
            timeout=None,
            user=user,
            shell=None,
            stdin=True,
            pty=None,
            detach=True,
        )
        document["output_limit"] = cells.TOTAL
        if memory is not None:
            document["memory"] = parse_size(memory, name="memory")
        stream = OpStream(plane=self._plane, op_id=op, document=document, keep=True)
        context = PythonContext(plane=self._plane, document=document, stream=stream)
        try:
            stream.open()
            context.wait_ready(wait=wait, interpreter=interpreter)
        except BaseException:
            if context_id is None:
                with suppress(SandlotError):  # it would hide the error that is raised
                    context.close()  # the caller never receives it
            else:
                stream.stop()
            raise
        return context

    def attach_python(self, context_id: str) -> PythonContext:
        """Attach to a Python context that was started earlier, here or elsewhere, by its `id`.

        `result()` then waits for the cell that it runs. One that has ended has its results, and cannot `restart`. Raises
        NotFound, OpExpired, and ValueError for another command.
        """
        op = calls.op_id_or_new(context_id)
        found = self._plane.call("GET", f"/ops/{op}", query={"spec": 1})
        spec: dict[str, Any] = found.get("spec") or {}
        command: Any = spec.get("command", [])
        if spec and not is_driver(command):
            raise ValueError(f"context_id: {op} is no Python context, but another command: use `attach`")
        document: dict[str, Any] = {
            "command": command,
            "stdin": True,
            "detach": True,
            "output_limit": cells.TOTAL,
            **{
                name: value
                for name, value in spec.items()
                if name in ("cwd", "env", "user", "memory") and value
            },
        }
        stream = OpStream(plane=self._plane, op_id=op, document=None, keep=True)
        return PythonContext(plane=self._plane, document=document, stream=stream)
