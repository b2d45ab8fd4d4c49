"""The messages of envd's RPCs as their clients send them, checked by msgspec."""

from __future__ import annotations

import base64
import binascii
from typing import Any, TypeVar

import msgspec

from sandlot_gateway.core.bad_json import NOT_JSON

from .failures import EnvdFailure, invalid

_SIGNALS = {"SIGNAL_SIGKILL": 9, "SIGNAL_SIGTERM": 15, 9: 9, 15: 15}


class Message(msgspec.Struct, rename="camel"):
    """Absent fields have protobuf's defaults; null means absent; unknown fields are ignored."""


class Size(Message):
    cols: int = 0
    rows: int = 0


class Pty(Message):
    size: Size | None = None


class Config(Message):
    cmd: str = ""
    args: list[str] | None = None
    envs: dict[str, str] | None = None
    cwd: str | None = None


class Start(Message):
    process: Config
    pty: Pty | None = None
    tag: str | None = None
    stdin: bool | None = None


class Selector(Message):
    pid: int | None = None
    tag: str | None = None


class Input(Message):
    stdin: str | None = None
    pty: str | None = None

    def data(self) -> bytes:
        """Decode the input. Raises EnvdFailure."""
        given = self.pty if self.stdin is None else self.stdin
        if given is None:
            raise invalid("input", "set either stdin or pty")
        try:
            return base64.b64decode(given, validate=True)
        except binascii.Error as error:
            raise invalid("input", f"is no base64: {error}") from error


class Selected(Message):
    """The body of Connect, CloseStdin; and of SendInput, SendSignal and Update, which add a field each."""

    process: Selector
    input: Input | None = None
    signal: str | int | None = None
    pty: Pty | None = None

    def signal_number(self) -> int:
        found = _SIGNALS.get(self.signal) if self.signal is not None else None
        if found is None:
            raise invalid("signal", "must be SIGNAL_SIGTERM or SIGNAL_SIGKILL")
        return found


class StreamStart(Message):
    process: Selector


class StreamData(Message):
    input: Input


class StreamInput(Message):
    start: StreamStart | None = None
    data: StreamData | None = None
    keepalive: dict[str, Any] | None = None


class Nothing(Message):
    pass


class Path(Message):
    path: str
    depth: int | None = None


class Watch(Message):
    path: str
    recursive: bool = False


class WatcherId(Message):
    watcher_id: str


class Move(Message):
    source: str
    destination: str


Read = TypeVar("Read", bound=Message)


def read(body: bytes, kind: type[Read]) -> Read:
    """Parse a message. Raises EnvdFailure, which names the field."""
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except NOT_JSON as error:
        raise EnvdFailure("invalid_argument", f"the message is invalid: {error}") from error


def terminal_size(pty: Pty | None) -> dict[str, int]:
    """Return a terminal's size for the sidecar. Raises EnvdFailure."""
    if pty is None or pty.size is None:
        raise invalid("pty.size", "is required")
    return {"cols": pty.size.cols, "rows": pty.size.rows}
