"""Writes the file of results as outcomes come, and reads it when a run is resumed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TextIO

from sandlot_grade.errors import GradeError, InputError
from sandlot_grade.jsonl import read_records
from sandlot_grade.work import Outcome


def results_path(samples: Path) -> Path:
    """Return FILE_results.jsonl beside FILE.jsonl; .gz is dropped."""
    name = samples.name.removesuffix(".gz")
    return samples.with_name(f"{name.removesuffix('.jsonl')}_results.jsonl")


def earlier(path: Path, *, keys: Mapping[int, str]) -> dict[int, Outcome]:
    """Return the outcomes in `path` that are still valid, by index: not lost, and with their index's key in `keys`.

    Ignores a last line that was cut off by a crash. Raises InputError for any other invalid line.
    """
    if not path.exists():
        return {}
    found: dict[int, Outcome] = {}
    try:
        for record in read_records(path):
            try:
                outcome = Outcome.from_document(record.data)
            except (KeyError, TypeError, ValueError) as error:
                message = "is not a result of this command; move the file away, or pass another --output"
                raise record.error(message) from error
            if keys.get(outcome.index) == outcome.key and outcome.result != "lost":
                found[outcome.index] = outcome
    except InputError as error:
        if error.line is None or not _cut_off(path, line=error.line):
            raise
    return found


def _cut_off(path: Path, *, line: int) -> bool:
    """Return whether this is the last line and has no end, as after a crash during a write."""
    content = path.read_bytes()
    return not content.endswith(b"\n") and line == content.count(b"\n") + 1


class Writer:
    """Writes the file of results, complete at every moment: old results first, then each new one.

    At the end it sorts the lines into the order of the input.
    """

    def __init__(self, path: Path, *, kept: Mapping[int, Outcome]) -> None:
        self._path = path
        self._outcomes = dict(kept)
        self._stream: TextIO | None = None

    def __enter__(self) -> Writer:
        try:
            self._rewrite()
            self._stream = self._path.open("a", encoding="utf-8")
        except OSError as error:
            raise GradeError(f"cannot write the results: {error}; pass another --output") from error
        return self

    def add(self, outcome: Outcome) -> None:
        assert self._stream is not None, "the writer is open"
        self._outcomes[outcome.index] = outcome
        self._stream.write(_line(outcome))
        self._stream.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._stream is not None:
            self._stream.close()
            self._rewrite()

    def _rewrite(self) -> None:
        new = self._path.with_name(self._path.name + ".new")
        new.write_text("".join(_lines(self._outcomes.values())), encoding="utf-8")
        os.replace(new, self._path)


def _lines(outcomes: Iterable[Outcome]) -> list[str]:
    return [_line(outcome) for outcome in sorted(outcomes, key=lambda outcome: outcome.index)]


def _line(outcome: Outcome) -> str:
    return json.dumps(outcome.document(), ensure_ascii=False) + "\n"
