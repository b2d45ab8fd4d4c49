"""Expects that calls of E2B's SDK raise."""

from __future__ import annotations

from collections.abc import Callable


def raises(kind: type[BaseException], work: Callable[[], object]) -> BaseException:
    try:
        found = work()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}: {found!r}")
