"""Reads JSON Lines files, plain or gzipped, with errors that name line and field."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from sandlot_grade.errors import InputError

# An unpaired surrogate: JSON can express one, UTF-8 cannot.
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Record:
    """One JSON object of a file, with its line number."""

    path: Path
    line: int
    data: dict[str, Any]

    def text(self, field: str, *, required: bool = True) -> str | None:
        """Return the string in `field`; None if it is absent or null and not required. Raises InputError."""
        value = self.data.get(field)
        if value is None:
            if required:
                raise self.error("is missing", field=field)
            return None
        if not isinstance(value, str):
            raise self.error(f"must be a string, not {type(value).__name__}", field=field)
        # It could be written neither into the sandbox nor into the results, which would abort a run halfway.
        if (half := _SURROGATE.search(value)) is not None:
            where = f"character {half.start() + 1} is an unpaired surrogate ({half[0]!r})"
            raise self.error(f"{where}, perhaps from a truncated text; remove it", field=field)
        return value

    def needed(self, field: str) -> str:
        """Return the string in `field`. Raises InputError if it is absent or not a string."""
        value = self.text(field)
        assert value is not None
        return value

    def error(self, message: str, *, field: str | None = None) -> InputError:
        return InputError(message, path=self.path, line=self.line, field=field)


def read_records(path: Path) -> Iterator[Record]:
    """Yield each non-empty line of `path` as a record. Raises InputError."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            for number, raw in enumerate(stream, start=1):
                if raw.strip():
                    yield Record(path=path, line=number, data=_object(raw, path=path, line=number))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"cannot be read: {error}; compress or copy it again", path=path) from error
    except OSError as error:
        raise InputError(f"cannot be read: {error}", path=path) from error


def _object(raw: bytes, *, path: Path, line: int) -> dict[str, Any]:
    try:
        value: object = json.loads(raw)
    except ValueError as error:
        raise InputError(f"is not JSON: {error}", path=path, line=line) from error
    except RecursionError as error:
        message = "is nested too deeply; a line must be one object of strings"
        raise InputError(message, path=path, line=line) from error
    if not isinstance(value, dict):
        raise InputError(f"must be a JSON object, not {type(value).__name__}", path=path, line=line)
    return cast("dict[str, Any]", value)
