"""Turns an op's frames and result into the events of a process' stream, without I/O."""

from __future__ import annotations

import base64
import signal
from typing import Any

from sandlot_contract.frames import KEEP_ALIVE, START, STDERR, STDOUT
from sandlot_contract.verdicts import CommandVerdict

from sandlot_gateway.data.errors import WireError

from . import sandbox_json
from .failures import EnvdFailure
from .op_ends import loss

_NEVER_RAN = 137  # exit code of a command that was killed before its process was known


def document(payload: bytes) -> dict[str, Any]:
    """Parse a frame's JSON. Raises WireError."""
    found = sandbox_json.parse(payload)
    if not isinstance(found, dict):
        raise WireError("a frame is not a JSON object")
    return found


class ProcessEvents:
    """The events of one stream. A client takes the first for the start, so output that comes before it is held."""

    __slots__ = ("_held", "_pty", "_told")

    def __init__(self, *, pty: bool, told: bool = False) -> None:
        """`told`: the client knows of the start."""
        self._pty = pty
        self._told = told
        self._held: list[dict[str, Any]] = []

    def of_frame(self, kind: int, payload: bytes) -> list[dict[str, Any]]:
        """Return what to send for a frame that is not the last; nothing for one of a later sidecar."""
        if kind == START:
            return self._started(document(payload).get("pid"))
        if kind == KEEP_ALIVE:
            return [{"event": {"keepalive": {}}}] if self._told else []
        if kind not in (STDOUT, STDERR):
            return []
        name = "pty" if self._pty else "stdout" if kind == STDOUT else "stderr"
        event = {"event": {"data": {name: base64.b64encode(payload).decode()}}}
        if self._told:
            return [event]
        # Only the sidecar's own message about a command that it could not start.
        self._held.append(event)
        return []

    def of_end(self, op: dict[str, Any], *, sandbox_id: str) -> list[dict[str, Any]]:
        """Return what to send last. Raises EnvdFailure for an end that is not the command's own."""
        ended = end(op, sandbox_id=sandbox_id)
        return [*self._started(None), ended]

    def _started(self, pid: int | None) -> list[dict[str, Any]]:
        if self._told:
            return []
        self._told = True
        held, self._held = self._held, []
        return [start(pid), *held]


def start(pid: int | None) -> dict[str, Any]:
    """Return the start event; pid is 0 for a command that never had a process."""
    return {"event": {"start": {"pid": pid or 0}}}


def end(op: dict[str, Any], *, sandbox_id: str) -> dict[str, Any]:
    """Return the end event of an op. Raises EnvdFailure for an end that is not the command's own."""
    verdict, number = op.get("verdict"), op.get("signal")
    text = str(op.get("message") or verdict)
    if verdict == CommandVerdict.TIMEOUT:
        raise EnvdFailure("deadline_exceeded", text)
    lost = loss(op, sandbox_id=sandbox_id)
    if lost is not None:
        raise lost
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
