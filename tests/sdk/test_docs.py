"""What the guides show works: their Python runs on a real stack, their command lines are ones that exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from sandlot import errors
from sandlot.cli.app import build
from typer.main import get_command

from tests.cli.conftest import environment
from tests.stack import Stack
from tests.waiting import SECONDS

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    "docs/sdk.md",
    "docs/python-contexts.md",
    "docs/file-watch.md",
    "docs/results.md",
    "docs/rl.md",
    "docs/runs.md",
    "docs/fair-share.md",
    "docs/run-report.md",
    "docs/groups.md",
    "docs/services.md",
    "docs/forks.md",
    "docs/verifier.md",
    "docs/first-command.md",
    "docs/dockerfiles.md",
    "docs/migrate-agent-sandbox.md",
    "docs/migrate-daytona.md",
    "docs/migrate-e2b.md",
    "docs/migrate-modal.md",
    "README.md",
    "sdk/README.md",
]
WITH_COMMANDS = [*PAGES, "docs/command-line.md", "docs/install.md"]
FENCE = re.compile(r"^```(\w*)$")
LINE = re.compile(r"^(?:\.venv/bin/)?sandlot (?P<rest>.*)$")


def fenced(page: str, language: str | None) -> Iterator[tuple[int, str]]:
    """Number and text of the lines inside the page's fences of one language, or of all."""
    inside: str | None = None
    for number, line in enumerate((ROOT / page).read_text().splitlines(), start=1):
        fence = FENCE.match(line)
        if fence is not None:
            inside = None if inside is not None else fence[1]
        elif inside is not None and language in (None, inside):
            yield number, line


def program(page: str) -> str:
    """The page's Python as one program, each line where it is in the page, so that errors name the page's lines."""
    lines = dict(fenced(page, "python"))
    return "\n".join(lines.get(number, "") for number in range(1, max(lines) + 1))


def command_lines(page: str) -> list[str]:
    return [match["rest"] for _, line in fenced(page, None) if (match := LINE.match(line))]


@cache
def command_line() -> Any:
    return get_command(build([]))


def leaf(words: list[str]) -> tuple[str, Any, list[str]]:
    """The command that these words call, its name, and the words that are left for it."""
    command = command_line()
    path: list[str] = []
    while hasattr(command, "commands"):
        assert words, f"{' '.join(path)} needs a command"
        name, *words = words
        assert name in command.commands, f"there is no command {' '.join([*path, name])}"
        command = command.commands[name]
        path.append(name)
    return " ".join(path), command, words


def leaves(command: Any, path: str = "") -> Iterator[str]:
    for name, child in getattr(command, "commands", {}).items():
        below = f"{path} {name}".strip()
        yield from leaves(child, below) if hasattr(child, "commands") else [below]


@pytest.mark.root
@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs(page: str, stack: Stack, tmp_path: Path) -> None:
    script = tmp_path / f"{Path(page).stem}.py"
    script.write_text(program(page))
    run = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        cwd=tmp_path,
        env=environment(stack.url, stack.api_key, tmp_path),
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(
    ("page", "line"), [(page, line) for page in WITH_COMMANDS for line in command_lines(page)]
)
def test_a_command_line_of_a_page_exists(page: str, line: str) -> None:
    words = shlex.split(line, comments=True)
    if "<" in words:
        words = words[: words.index("<")]
    name, command, rest = leaf(words)
    command.make_context(name, rest)  # refuses unknown options, missing arguments and wrong values


def test_the_page_of_the_command_line_names_every_command() -> None:
    shown = {leaf(shlex.split(line, comments=True))[0] for line in command_lines("docs/command-line.md")}
    assert shown == set(leaves(command_line()))


def test_the_page_of_results_names_every_error() -> None:
    text = (ROOT / "docs/results.md").read_text()
    found = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.SandlotError)
    }
    assert {name for name in found if not re.search(rf"\b{name}\b", text)} == set()
