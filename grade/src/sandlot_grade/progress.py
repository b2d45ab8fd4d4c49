"""Shows the progress of a grading run: a live bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from sandlot_grade.work import Outcome

EVERY = 5.0  # seconds between two lines without a terminal


class Display:
    """A progress display, as a context manager; `concurrency` is only shown."""

    def __init__(self, *, console: Console, total: int, concurrency: int) -> None:
        self._console = console
        self._total = total
        self._done = self._passed = self._lost = 0
        self._begun = self._said = time.monotonic()
        self._bar = Progress(
            TextColumn("grading"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("grading", total=total, state=f"{concurrency} at once")

    def __enter__(self) -> Display:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def add(self, outcome: Outcome) -> None:
        self._done += 1
        self._passed += outcome.passed
        self._lost += outcome.result == "lost"
        self._bar.update(self._task, advance=1, state=self._state())
        now = time.monotonic()
        if not self._console.is_terminal and (now - self._said >= EVERY or self._done == self._total):
            self._said = now
            self._console.print(f"graded {self._done}/{self._total}: {self._state()}", highlight=False)

    def _state(self) -> str:
        rate = self._done / max(time.monotonic() - self._begun, 1e-9)
        lost = f", {self._lost} lost" if self._lost else ""
        return f"{self._passed} passed{lost}, {rate:.1f}/s"
