"""Errors of grading runs and their input, with file, line and field."""

from __future__ import annotations

from pathlib import Path

from sandlot.errors import SandlotError


class GradeError(SandlotError):
    """Raised when a grading run cannot start or continue; the message is for the user."""


class InputError(GradeError):
    """Raised for an invalid line of an input file.

    `line` counts from 1 (None: the file as a whole); `field` is the JSON key at fault, if any.
    """

    def __init__(
        self, message: str, *, path: Path, line: int | None = None, field: str | None = None
    ) -> None:
        where = str(path) if line is None else f"{path}:{line}"
        what = message if field is None else f"field {field!r}: {message}"
        super().__init__(f"{where}: {what}")
        self.path = path
        self.line = line
        self.field = field
