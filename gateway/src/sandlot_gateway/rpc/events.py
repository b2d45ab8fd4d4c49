"""Converts an op's frames and result into a session's events, without I/O."""

from __future__ import annotations

import signal
from typing import Any

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from sandlot_contract.frames import KEEP_ALIVE, START, STDERR, STDOUT
from sandlot_contract.verdicts import CommandVerdict

from ..data.frames import document
from .generated.command_session_pb2 import CommandSessionEvent

OUTPUT = (STDOUT, STDERR)  # the kinds of frames whose payload is output

_Data = CommandSessionEvent.DataEvent
_KEEPALIVE = CommandSessionEvent(keepalive=CommandSessionEvent.KeepAlive())


def start(pid: int | None) -> CommandSessionEvent:
    """Return the start event; pid is 0 for a command that ended before its pid was reported."""
    return CommandSessionEvent(start=CommandSessionEvent.StartEvent(pid=pid or 0))


def of_output(kind: int, payload: bytes, *, pty: bool) -> CommandSessionEvent:
    """Return the event of a frame of OUTPUT."""
    if kind == STDERR:
        return CommandSessionEvent(data=_Data(stderr=payload))
    return CommandSessionEvent(data=_Data(pty=payload) if pty else _Data(stdout=payload))


def of_frame(kind: int, payload: bytes) -> CommandSessionEvent | None:
    """Return the event of another frame, except the last; None for one of a later sidecar."""
    if kind == START:
        return start(document(payload).get("pid"))
    return _KEEPALIVE if kind == KEEP_ALIVE else None


def end(op: dict[str, Any], *, session: bool) -> CommandSessionEvent:
    """Return the end event of an op. Raises ConnectError for an end that is not the command's own."""
    verdict, number = op.get("verdict"), op.get("signal")
    message = op.get("message")
    text = f"{verdict}: {message}" if message else str(verdict)
    if verdict == CommandVerdict.TIMEOUT:
        raise ConnectError(Code.DEADLINE_EXCEEDED, text)
    if verdict in (CommandVerdict.SANDBOX_ENDED, CommandVerdict.EVICTED):
        raise ConnectError(Code.NOT_FOUND, text)
    if verdict == CommandVerdict.START_FAILED:
        raise ConnectError(Code.INVALID_ARGUMENT, message or text)
    if verdict in (CommandVerdict.SANDBOX_BROKEN, CommandVerdict.SIDECAR_LOST):
        # Clients do not reattach to a session that is not_found; for a command it would mean a lost sandbox.
        raise ConnectError(Code.NOT_FOUND if session else Code.ABORTED, text)
    code = op.get("exit_code")
    if number is None and code is None:
        number = signal.SIGKILL  # killed before it started
    event = CommandSessionEvent.EndEvent(
        exit_code=-number if number else code,
        exited=not number,
        status=f"signal: {number}" if number else f"exit status {code}",
    )
    if verdict != CommandVerdict.EXITED:
        event.error = text
    return CommandSessionEvent(end=event)
