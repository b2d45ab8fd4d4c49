"""What a service's command waits for in its sandbox before it starts: a directory, and a file that stands for others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

MARK = "/.sandlot-dependencies"  # a file that says that what a service depends on is there
# `exec`: a stop signals the command itself.
_AFTER = 'until [ -e "$0" ]; do sleep 0.1; done; exec "$@"'
# A create starts the command before anyone can make a missing directory.
_IN_WORKDIR = 'until cd "$0" 2>/dev/null; do sleep 0.1; done; exec "$@"'


@dataclass(frozen=True, kw_only=True)
class Awaited:
    """The paths that a command waits for, each None if there is none."""

    mark: str | None = None
    workdir: str | None = None


def after(command: Sequence[str]) -> list[str]:
    """Return a command that waits for MARK."""
    return ["sh", "-c", _AFTER, MARK, *command]


def in_workdir(command: Sequence[str], workdir: str) -> list[str]:
    """Return a command that waits for a directory and begins in it."""
    return ["sh", "-c", _IN_WORKDIR, workdir, *command]


def awaited(start_command: object) -> Awaited:
    """Return what a start command of these waits for, of any other nothing. It is as the server tells it."""
    if not isinstance(start_command, Mapping):
        return Awaited()
    told = cast(Mapping[str, Any], start_command)
    words = [told.get("executable"), *(told.get("args") or ())]
    mark = workdir = None
    if words[:3] == ["sh", "-c", _AFTER] and len(words) > 3:
        mark, words = words[3], words[4:]
    if words[:3] == ["sh", "-c", _IN_WORKDIR] and len(words) > 3:
        workdir = words[3]
    return Awaited(mark=mark, workdir=workdir)
