"""Shows the findings to people and programs, and derives the exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from sandlot.cli.output import printable

from .finding import PROBLEM, UNCHECKED, Finding
from .world import World

_SHOWN = {UNCHECKED: "could not check"}


def lines(world: World, found: Sequence[Finding]) -> Iterator[str]:
    release = world.release
    yield f"release {release.name}: gateway and controller in {release.namespace}, sandboxes in {release.sandboxes}"
    for one in found:
        yield printable(f"{_SHOWN.get(one.state, one.state)}  {one.name}: {one.detail}")
        if one.advice:
            yield printable(f"    → {one.advice}")
    counts = Counter(one.state for one in found)
    yield ", ".join(f"{counts[state]} {_SHOWN.get(state, state)}" for state in ("ok", PROBLEM, UNCHECKED))


def document(world: World, found: Iterable[Finding]) -> dict[str, Any]:
    return {
        "release": asdict(world.release),
        "tool": asdict(world.tool),
        "checks": [asdict(one) for one in found],
    }


def code(found: Iterable[Finding]) -> int:
    """Return 1 if there is a problem, else 0: what could not be checked is no fault of the installation."""
    return int(any(one.state == PROBLEM for one in found))
