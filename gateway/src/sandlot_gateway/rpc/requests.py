"""Validates a session's messages and converts them to sidecar requests, without I/O."""

from __future__ import annotations

import re
from typing import Any

from .failures import bad
from .generated.command_session_pb2 import (
    PTY,
    CommandInput,
    CommandSessionInfo,
    CommandSpec,
    StartRequest,
)

_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}\Z")
_BASH = ("/bin/bash", "bash")
_SH = ("/bin/sh", "sh")


def identifier(field: str, value: str) -> str:
    """Return an id that is valid for an op. Raises ConnectError."""
    if not _ID.match(value) or value in (".", ".."):
        raise bad(field, "must be 1 to 128 characters of A-Z a-z 0-9 . _ : -")
    return value


def op_spec(request: StartRequest, *, timeout_ms: int | None) -> dict[str, Any]:
    """Return the body of `POST /v1/ops`. Raises ConnectError.

    It has the caller's time limit, not the remaining time: a repeated Start must be equal.
    """
    command = request.command
    if not command.cmd:
        raise bad("command.cmd", "is required")
    spec: dict[str, Any] = {"env": dict(command.envs)}
    args = command.args
    if command.cmd in _BASH + _SH and len(args) == 2 and args[0] == "-c":
        # As `command`, for which the sidecar uses sh without bash, and which may be longer than an argv allows.
        spec["command"] = args[1]
        if command.cmd in _SH:
            spec["shell"] = "sh"
    else:
        spec["command"] = [command.cmd, *args]
    if command.HasField("cwd"):
        spec["cwd"] = command.cwd
    if command.HasField("user"):
        spec["user"] = command.user
    if request.HasField("pty"):
        spec["pty"] = terminal_size(request.pty)
    session = request.HasField("session_uuid")
    if request.stdin if request.HasField("stdin") else session:
        spec["stdin"] = True
    if session:
        spec |= {"id": identifier("session_uuid", request.session_uuid), "detach": True}
    else:
        spec["quiet"] = True
    if timeout_ms is not None:
        spec["timeout"] = timeout_ms / 1000
    return spec


def terminal_size(pty: PTY) -> dict[str, int]:
    if not pty.HasField("size"):
        raise bad("pty.size", "is required")
    return {"cols": pty.size.cols, "rows": pty.size.rows}


def input_bytes(given: CommandInput) -> bytes:
    kind = given.WhichOneof("input")
    if kind is None:
        raise bad("input", "set either stdin or pty")
    return given.stdin if kind == "stdin" else given.pty


def session_info(op: dict[str, Any]) -> CommandSessionInfo:
    """Return List's entry for an op whose document has its spec."""
    spec = op["spec"]
    command = spec["command"]
    argv = command if isinstance(command, list) else [_program(spec["shell"]), "-c", command]
    described = CommandSpec(cmd=argv[0], args=argv[1:], envs=spec["env"])
    if spec["cwd"] is not None:
        described.cwd = spec["cwd"]
    if spec["user"] is not None:
        described.user = str(spec["user"])
    return CommandSessionInfo(command=described, pid=op["pid"] or 0, session_uuid=op["op_id"])


def _program(shell: str | None) -> str:
    """Return the program that a client would have named for this shell."""
    if shell is None:
        return _BASH[0]
    return shell if shell.startswith("/") else f"/bin/{shell}"
