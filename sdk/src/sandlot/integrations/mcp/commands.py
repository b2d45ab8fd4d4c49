"""The tools that begin a command: run one and wait for its end, or start one that keeps running."""

from __future__ import annotations

from typing import Any

from sandlot._protocol import calls
from sandlot._protocol.documents import usage
from sandlot._tasks_async import ABANDONED, shielded
from sandlot.errors import ConnectionFailed, SandboxLost, SandlotError
from sandlot.integrations.mcp.ops import (
    END,
    OUTPUT,
    Document,
    process,
    read_ends,
    read_state,
    sizes_of,
    state_fields,
)
from sandlot.integrations.mcp.schema import Schema, flag, integer, number, out, result, text, variables
from sandlot.integrations.mcp.schema import arguments as takes
from sandlot.integrations.mcp.session import Session
from sandlot.integrations.mcp.tool import (
    LONGEST,
    LONGEST_CALL,
    MOST_TEXT,
    MOST_WRITE,
    SANDBOX,
    TEXT,
    Arguments,
    Tool,
)

_POLL = 25.0  # seconds that one request waits for an end
_EXEC = 60.0  # default seconds


async def _exec(session: Session, given: Arguments) -> dict[str, Any]:
    sandbox, plane = given["sandbox_id"], session.plane(given["sandbox_id"])
    document = _op_document(
        given, timeout=given.get("timeout_seconds", _EXEC), stdin="stdin" in given, pty=False
    )
    op = document["id"]
    begun = False
    try:
        wait = 0.0 if "stdin" in given else _POLL
        state = await plane.call("POST", "/ops", body=document, query={"wait": wait}, timeout=_POLL + 30.0)
        begun = True
        if "stdin" in given:
            await process(plane, op).feed(given["stdin"])
        while state.get("state") != "ended":
            state = await read_state(plane, op, wait=_POLL)
        fields = state_fields(state, sandbox_id=sandbox)
        dropped, most = bool(state.get("truncated")), int(given.get("max_bytes", TEXT))
        sizes = sizes_of(state)
        stdout = await read_ends(plane, op, "stdout", size=sizes["stdout_bytes"], most=most, dropped=dropped)
        stderr = await read_ends(plane, op, "stderr", size=sizes["stderr_bytes"], most=most, dropped=dropped)
    except ABANDONED:
        await shielded(lambda: plane.kill(op))
        raise
    except SandlotError as error:
        if (begun and not isinstance(error, SandboxLost)) or isinstance(error, ConnectionFailed):
            error.add_note(f"read_output with op_id {op} says what became of the command")
        raise
    used = usage(state)
    return {
        **fields,
        **sizes,
        "stdout": stdout.text,
        "stderr": stderr.text,
        "stdout_truncated": stdout.truncated,
        "stderr_truncated": stderr.truncated,
        "output_dropped": dropped,
        "wall_seconds": used.wall,
        "cpu_seconds": used.cpu,
        "peak_memory_bytes": used.peak_memory,
    }


async def _start_command(session: Session, given: Arguments) -> dict[str, Any]:
    document = _op_document(
        given,
        timeout=given.get("timeout_seconds"),
        stdin=bool(given.get("stdin") or given.get("pty")),
        pty=bool(given.get("pty")),
    )
    state = await session.plane(given["sandbox_id"]).call("POST", "/ops", body=document, query={"wait": 0})
    return state_fields(state, sandbox_id=given["sandbox_id"])


def _op_document(given: Arguments, *, timeout: float | None, stdin: bool, pty: bool) -> Document:
    """Return the body of an op that needs no connected client: a call that ends early kills it by itself."""
    user = given.get("user")
    return calls.op_document(
        op_id=calls.op_id_or_new(given.get("op_id")),
        command=given["command"],
        cwd=given.get("cwd"),
        env=given.get("env"),
        timeout=timeout,
        user=int(user) if user is not None and user.isascii() and user.isdigit() else user,
        shell=None,
        stdin=stdin,
        pty=(80, 24) if pty else None,
        detach=True,
    )


_AGAIN = "Repeat a call that failed with the same op_id, and the command runs only once."
_COMMAND: dict[str, Schema] = {
    "sandbox_id": SANDBOX,
    "command": text("A command line for the shell: bash, or sh if the image has no bash.", longest=128 << 10),
    "cwd": text("The working directory."),
    "env": variables("More environment variables."),
    "user": text("The user who runs it, a name or a number.", longest=64),
    "op_id": text(f"An id of your own for it (letters, digits, . _ : -). {_AGAIN}", longest=128, minLength=1),
}

TOOLS = (
    Tool(
        name="exec",
        title="Run a command",
        description=(
            "Run a shell command and wait for its end. A command that fails is a normal result: look at verdict and "
            f"exit_code. It is killed after timeout_seconds (default 60, at most {LONGEST_CALL:g}) with the verdict timeout; "
            "use start_command for servers, and for what takes longer. Each stream has at most max_bytes: of a longer one "
            "the begin and the end, and its truncated flag is set; read_output has the rest for 10 minutes. Files and "
            "background processes stay; the working directory and variables of the shell do not. A cancelled call kills the command."
        ),
        takes=takes(
            ("sandbox_id", "command"),
            **_COMMAND,
            stdin=text("Standard input. Default: none.", longest=MOST_WRITE),
            timeout_seconds=number("Default: 60.", least=0.1, most=LONGEST_CALL),
            max_bytes=integer(f"Of each stream. Default: {TEXT}.", least=256, most=MOST_TEXT),
        ),
        gives=result(
            (),
            **END,
            **OUTPUT,
            stdout_truncated=out("boolean", "Whether a part of standard output is left out of this result."),
            stderr_truncated=out("boolean", "Likewise of standard error."),
            output_dropped=out(
                "boolean", "The command wrote more than the sandbox keeps (64 MiB): the rest is lost."
            ),
            wall_seconds=out("number", "How long it ran."),
            cpu_seconds=out("number", "CPU time that it used."),
            peak_memory_bytes=out("integer", "The most memory that it used; 0: unknown."),
        ),
        destroys=True,
        run=_exec,
    ),
    Tool(
        name="start_command",
        title="Start a command",
        description=(
            "Start a shell command and return at once, for servers, interactive programs and what takes long. It runs "
            "until it ends, for timeout_seconds at most, or as long as its sandbox. Look at it with read_output, write to it with "
            "write_stdin, end it with kill_command. It keeps running when this call's client disconnects."
        ),
        takes=takes(
            ("sandbox_id", "command"),
            **_COMMAND,
            stdin=flag("Whether write_stdin will be used. Default: false, no input."),
            pty=flag("Give it a terminal of 80 x 24, as interactive programs want. Default: false."),
            timeout_seconds=number("Default: as long as the sandbox.", least=0.1, most=LONGEST),
        ),
        gives=result((), **END),
        destroys=True,
        run=_start_command,
    ),
)
