"""What can be wrong with the input of a grading run, said with the file, the line and the field."""

from __future__ import annotations

from pathlib import Path

from sandlot.errors import SandlotError


class GradeError(SandlotError):
    """The grading run cannot start or go on; the message is for the user as it stands."""


class InputError(GradeError):
    """A line of an input file that cannot be used.

    `line` counts from 1 (None: the file as a whole); `field` is the JSON key at fault, when there is one.
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
