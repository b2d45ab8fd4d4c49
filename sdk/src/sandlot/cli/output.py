"""Shared by all commands: the connection, exit codes, tables for people and JSON for programs."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, is_dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer

from sandlot.errors import (
    AuthError,
    BadRequest,
    ConfigError,
    ConnectionFailed,
    NotFound,
    SandboxLost,
    SandlotError,
    StartFailed,
)
from sandlot.models import ExecResult, Exit

if TYPE_CHECKING:
    from rich.console import Console

    from sandlot import Client

Row = TypeVar("Row")
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]

FAILED, USAGE, MISSING, DENIED, TIMED_OUT, LOST, NOT_STARTED = 1, 2, 3, 4, 124, 125, 126


@dataclass(slots=True)
class Connection:
    """The server named by the options before the command."""

    url: str | None = None
    api_key: str | None = None

    def client(self) -> Client:
        from sandlot import Client

        return Client(url=self.url, api_key=self.api_key)


connection = Connection()


def failure_code(error: SandlotError) -> int:
    """Return the exit code for an error of a command other than `run`, `exec` and `shell`."""
    if isinstance(error, NotFound):
        return MISSING
    if isinstance(error, AuthError | ConfigError):
        return DENIED
    return FAILED


def command_code(end: ExecResult | Exit) -> int:
    """Return the exit code of `run` and `exec`: the command's own, or 124 after its timeout."""
    if end.verdict == "timeout":
        return TIMED_OUT
    return end.exit_code if 0 <= end.exit_code <= 255 else FAILED


@contextmanager
def lost_is_said() -> Generator[None]:
    """Exit `run`, `exec` and `shell` with 125 if the server or sandbox is gone; 1 may be the command's own code."""
    try:
        yield
    except (SandboxLost, ConnectionFailed) as error:
        verdict = f" ({error.verdict})" if isinstance(error, SandboxLost) else ""
        print(f"sandlot: {one_line(error)}{verdict}", file=sys.stderr)
        raise typer.Exit(LOST) from None


@contextmanager
def refusal_is_said(*, shown: bool) -> Generator[None]:
    """Exit with 126 if the command could not start; `shown` is whether its output has been shown."""
    try:
        yield
    except BadRequest as error:
        # The output's last line was the message of the failed start.
        if not (shown and isinstance(error, StartFailed)):
            print(f"sandlot: {one_line(error)}", file=sys.stderr)
        raise typer.Exit(NOT_STARTED) from None


def one_line(error: BaseException) -> str:
    """Return an error's message on one line, printable."""
    return printable(" ".join(str(error).split())) or type(error).__name__


def printable(text: str) -> str:
    """Return it without what a terminal would obey; a file or a server may have chosen it."""
    return "".join(one if one.isprintable() else "?" for one in text)


def plain(value: object) -> Any:
    """Convert records to dictionaries, for JSON."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in cast(Iterable[object], value)]
    return value


def _dumped(value: object) -> str:
    """Return JSON, in which decimals are strings: as numbers, readers would round them."""
    return json_module.dumps(plain(value), ensure_ascii=False, default=_decimal)


def _decimal(value: object) -> str:
    if isinstance(value, Decimal):
        return f"{value:f}"
    raise TypeError(f"not for JSON: {type(value).__name__}")


def show(value: object, *, json: bool, text: str) -> None:
    """Print one value, as text or JSON."""
    print(_dumped(value) if json else text)


def show_table(
    rows: Sequence[Row],
    *,
    json: bool,
    columns: Mapping[str, Callable[[Row], object]],
    empty: str = "nothing to show",
) -> None:
    """Print records as a table or JSON; `columns` maps a heading to a function from record to text."""
    if json:
        print(_dumped(list(rows)))
        return
    if not rows:
        print(empty, file=sys.stderr)
        return
    cells = [list(columns), *[[str(make(row)) for make in columns.values()] for row in rows]]
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    for line in cells:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def console() -> Console:
    """Return the console for progress: standard error, so that output can be piped."""
    from rich.console import Console

    return Console(stderr=True)


def note(text: str) -> None:
    """Print a line on standard error, apart from the output."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr)


def pairs(values: Sequence[str], *, option: str, from_environment: bool = True) -> dict[str, str]:
    """Parse `NAME=VALUE` options to a dictionary; `NAME` alone takes the value `from_environment`, if that may be."""
    import os

    found: dict[str, str] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not name or not (equals or from_environment):
            raise ValueError(f"{option}: must be NAME=VALUE, not {value!r}")
        if not equals:
            if name not in os.environ:
                raise ValueError(f"{option}: {name} is not set in this environment")
            text = os.environ[name]
        found[name] = text
    return found


def as_command(words: Sequence[str]) -> str | list[str]:
    """Return one word as a line for the shell, several as a program and its arguments; drop a leading `--`."""
    if words and words[0] == "--":
        words = words[1:]
    if not words:
        raise typer.BadParameter("a command is missing: write it after --")
    return words[0] if len(words) == 1 else list(words)
