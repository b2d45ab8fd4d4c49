"""What a cell of a Python context returned: its output, displayed objects, error and end."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sandlot.models import Verdict


class CellStatus(StrEnum):
    """How a cell ended. `DIED`: its process ended or was killed within it, so the context has lost its state."""

    OK = "ok"
    ERROR = "error"
    TIMEOUT = "timeout"
    DIED = "died"


@dataclass(frozen=True, slots=True)
class CellError:
    """What a cell raised: the exception's class and text, and the lines of its traceback."""

    name: str
    value: str
    traceback: tuple[str, ...]

    def __str__(self) -> str:
        return "".join(self.traceback)


@dataclass(frozen=True, slots=True)
class RichOutput:
    """An object that a cell displayed, in each of its media types; images are base64, as in Jupyter's messages.

    `is_result` is true for the value of the cell's last expression.
    """

    data: dict[str, Any]
    metadata: dict[str, Any]
    is_result: bool = False

    @property
    def text(self) -> str | None:
        """The object as plain text."""
        return self._string("text/plain")

    @property
    def html(self) -> str | None:
        """The object as HTML, if it has that."""
        return self._string("text/html")

    @property
    def png(self) -> bytes | None:
        """The object as the bytes of a PNG image, if it has that."""
        encoded = self._string("image/png")
        try:
            return None if encoded is None else base64.b64decode(encoded)
        except (binascii.Error, ValueError):
            return None

    def _string(self, media: str) -> str | None:
        value = self.data.get(media)
        return value if isinstance(value, str) else None


@dataclass(frozen=True, slots=True)
class CellResult:
    """Outcome and output of a cell.

    `state_lost` means that the context has no process any more, for the reason in `message`; `restart` starts a new
    one. `verdict` is that of the context's command, if that ended, too. `seconds` is the time that the cell ran.
    """

    id: str
    status: CellStatus
    execution_count: int
    stdout: str = ""
    stderr: str = ""
    outputs: tuple[RichOutput, ...] = ()
    error: CellError | None = None
    message: str = ""
    state_lost: bool = False
    truncated: bool = False
    seconds: float = 0.0
    verdict: Verdict | None = None

    @property
    def ok(self) -> bool:
        """True when the cell ran to its end and raised nothing."""
        return self.status == CellStatus.OK

    @property
    def result(self) -> RichOutput | None:
        """The value of the last expression, if the cell ends with one that is not None."""
        return next((output for output in reversed(self.outputs) if output.is_result), None)

    @property
    def text(self) -> str | None:
        """The value of the last expression as plain text."""
        result = self.result
        return None if result is None else result.text
