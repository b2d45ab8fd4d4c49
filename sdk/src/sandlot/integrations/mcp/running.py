"""The tools for a command that runs: read its output, write to its input, end it."""

from __future__ import annotations

import asyncio
from typing import Any

from sandlot._protocol import calls
from sandlot._tasks_async import now, sleep
from sandlot.errors import BadRequest, Conflict
from sandlot.integrations.mcp.ops import END, OUTPUT, process, read_part, read_state, sizes_of, state_fields
from sandlot.integrations.mcp.schema import arguments as takes
from sandlot.integrations.mcp.schema import flag, integer, number, out, result, text
from sandlot.integrations.mcp.session import Session, writer
from sandlot.integrations.mcp.tool import LONGEST_CALL, MOST_TEXT, MOST_WRITE, SANDBOX, TEXT, Arguments, Tool

_POLL = 25.0  # seconds that one request waits for an end
_WRITE = 60.0  # seconds that a command may take to read its input


async def _read_output(session: Session, given: Arguments) -> dict[str, Any]:
    plane, op = session.plane(given["sandbox_id"]), _op(given)
    offsets = {name: int(given.get(f"{name}_offset", 0)) for name in ("stdout", "stderr")}
    most = int(given.get("max_bytes", TEXT))
    until = now() + given.get("wait_seconds", 0.0)
    wants_end = given.get("wait_for") == "end"
    state = await read_state(plane, op, wait=0)
    delay = 0.05
    while state.get("state") != "ended" and now() < until:
        if wants_end:
            state = await read_state(plane, op, wait=max(0.0, min(_POLL, until - now())))
            continue
        if any(size > offsets[name.removesuffix("_bytes")] for name, size in sizes_of(state).items()):
            break
        await sleep(max(0.0, min(delay, until - now())))
        delay = min(delay * 1.5, 1.0)
        state = await read_state(plane, op, wait=0)
    fields = state_fields(state, sandbox_id=given["sandbox_id"])
    ended = fields["state"] == "ended"
    stdout = await read_part(plane, op, "stdout", offset=offsets["stdout"], most=most, final=ended)
    stderr = await read_part(plane, op, "stderr", offset=offsets["stderr"], most=most, final=ended)
    sizes = sizes_of(state)
    dropped = bool(state.get("truncated"))
    read = {"stdout_bytes": stdout.next, "stderr_bytes": stderr.next}
    # Of dropped output an offset may never reach the end: then an empty part is the last one.
    last = all(
        read[name] >= size or (dropped and read[name] <= offsets[name[:6]]) for name, size in sizes.items()
    )
    return {
        **fields,
        **sizes,
        "stdout": stdout.text,
        "stderr": stderr.text,
        "next_stdout_offset": stdout.next,
        "next_stderr_offset": stderr.next,
        "complete": ended and last,
        "output_dropped": dropped,
    }


async def _write_stdin(session: Session, given: Arguments) -> dict[str, Any]:
    plane, op, data = session.plane(given["sandbox_id"]), _op(given), given.get("text", "").encode()
    running = process(plane, op)
    try:
        async with asyncio.timeout(_WRITE), writer(session.owner, plane.sandbox_id, op):
            if data:
                await running.write(data)
            if given.get("eof"):
                await running.close_stdin()
    except TimeoutError:
        raise Conflict(
            f"the command did not read its input within {_WRITE:g} s: read its output, a part may be written",
            status=408,
            code="stdin_full",
        ) from None
    return {"op_id": op, "written_bytes": len(data)}


async def _kill_command(session: Session, given: Arguments) -> dict[str, Any]:
    plane, op = session.plane(given["sandbox_id"]), _op(given)
    if "signal" in given:
        await process(plane, op).signal(given["signal"])
        state = await read_state(plane, op, wait=0)
    else:
        await plane.call("DELETE", f"/ops/{op}")
        state = await read_state(plane, op, wait=5.0)
    return state_fields(state, sandbox_id=given["sandbox_id"])


def _op(given: Arguments) -> str:
    op: str = given["op_id"]
    if not calls.OP_ID.fullmatch(op) or op in (".", ".."):
        raise BadRequest("op_id: must be one that exec or start_command returned", field="op_id")
    return op


_OP = text("The op_id of exec or start_command.", longest=128, minLength=1)

TOOLS = (
    Tool(
        name="read_output",
        title="Read a command's output",
        description=(
            "Read a command's output from byte offsets on, and whether it has ended. Pass next_stdout_offset and "
            "next_stderr_offset of the last call to continue. Output is kept for 10 minutes after the end. "
            "With wait_seconds it waits for new output (or, with wait_for=end, for the end)."
        ),
        takes=takes(
            ("sandbox_id", "op_id"),
            sandbox_id=SANDBOX,
            op_id=_OP,
            stdout_offset=integer("Default: 0.", least=0, most=1 << 53),
            stderr_offset=integer("Default: 0.", least=0, most=1 << 53),
            max_bytes=integer(f"Of each stream. Default: {TEXT}.", least=256, most=MOST_TEXT),
            wait_seconds=number("Default: 0.", least=0, most=LONGEST_CALL),
            wait_for=text("Default: output.", choices=("output", "end")),
        ),
        gives=result(
            (),
            **END,
            **OUTPUT,
            next_stdout_offset=out("integer", "Where the next read of standard output begins."),
            next_stderr_offset=out("integer", "Likewise of standard error."),
            complete=out("boolean", "The command has ended, and this result has the last of its output."),
            output_dropped=out(
                "boolean", "The command wrote more than the sandbox keeps (64 MiB): the rest is lost."
            ),
        ),
        reads=True,
        run=_read_output,
    ),
    Tool(
        name="write_stdin",
        title="Write to a command",
        description=(
            "Write to the standard input of a command that start_command started with stdin=true. End a line with \\n. "
            "eof=true closes the input (in a terminal: Ctrl-D). Waits up to 60 s while the command does not read. "
            "One call at a time for a command."
        ),
        takes=takes(
            ("sandbox_id", "op_id"),
            sandbox_id=SANDBOX,
            op_id=_OP,
            text=text("What to write. Default: nothing.", longest=MOST_WRITE),
            eof=flag("Whether to close the input afterwards. Default: false."),
        ),
        gives=result((), op_id=END["op_id"], written_bytes=out("integer", "Bytes that were written.")),
        run=_write_stdin,
    ),
    Tool(
        name="kill_command",
        title="End a command",
        description=(
            "Kill a command and all that it started; its verdict is then killed. With signal, only send that signal, for "
            "instance INT as Ctrl-C does."
        ),
        takes=takes(
            ("sandbox_id", "op_id"),
            sandbox_id=SANDBOX,
            op_id=_OP,
            signal=text(
                "A signal to send in place of the kill.",
                choices=("INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "STOP", "CONT"),
            ),
        ),
        gives=result((), **END),
        destroys=True,
        repeatable=True,
        run=_kill_command,
    ),
)
