"""Turns an op's frames and result into the events of a process' stream, without I/O."""

from __future__ import annotations

import base64
import signal
from typing import Any

import msgspec
from sandlot_contract.frames import KEEP_ALIVE, START, STDERR, STDOUT
from sandlot_contract.verdicts import CommandVerdict

from sandlot_gateway.data.errors import WireError

from .failures import EnvdFailure, not_running

_LOST = (CommandVerdict.SANDBOX_BROKEN, CommandVerdict.SIDECAR_LOST)
_ENDED = (CommandVerdict.SANDBOX_ENDED, CommandVerdict.EVICTED)
_NEVER_RAN = 137  # exit code of a command that was killed before its process was known


def document(payload: bytes) -> dict[str, Any]:
    """Parse a frame's JSON. Raises WireError."""
    try:
        found = msgspec.json.decode(payload)
    except msgspec.DecodeError as error:
        raise WireError(f"a frame is not valid JSON: {error}") from error
    if not isinstance(found, dict):
        raise WireError("a frame is not a JSON object")
    return found


def start(pid: int | None) -> dict[str, Any]:
    return {"event": {"start": {"pid": pid or 0}}}


def of_frame(kind: int, payload: bytes, *, pty: bool) -> dict[str, Any] | None:
    """Return the event of a frame, except the last; None for one of a later sidecar."""
    if kind in (STDOUT, STDERR):
        name = "pty" if pty else "stdout" if kind == STDOUT else "stderr"
        return {"event": {"data": {name: base64.b64encode(payload).decode()}}}
    if kind == START:
        return start(document(payload).get("pid"))
    return {"event": {"keepalive": {}}} if kind == KEEP_ALIVE else None


def end(op: dict[str, Any], *, sandbox_id: str) -> dict[str, Any]:
    """Return the end event of an op. Raises EnvdFailure for an end that is not the command's own."""
    verdict, number = op.get("verdict"), op.get("signal")
    text = str(op.get("message") or verdict)
    if verdict == CommandVerdict.TIMEOUT:
        raise EnvdFailure("deadline_exceeded", text)
    if verdict in _ENDED:
        raise not_running(sandbox_id, text)
    if verdict in _LOST:
        raise EnvdFailure("unavailable", f"the command was lost, not ended by itself: {text}")
    if verdict == CommandVerdict.START_FAILED:
        # As envd answers: an unknown user is a wrong credential.
        raise EnvdFailure("unauthenticated" if text.startswith("user") else "invalid_argument", text)
    code = op.get("exit_code")
    ended: dict[str, Any] = {
        "exitCode": _NEVER_RAN if code is None else code,
        "exited": not number,
        "status": f"signal: {_signal(number)}" if number else f"exit status {code}",
    }
    if verdict not in (CommandVerdict.EXITED, CommandVerdict.SIGNALED, CommandVerdict.KILLED):
        ended["error"] = f"{verdict}: {text}"
    elif number:
        ended["error"] = ended["status"]
    elif code:
        ended["error"] = f"exit status {code}"
    return {"event": {"end": ended}}


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
