"""Shortens lists for people."""

from __future__ import annotations

from collections.abc import Iterable

_SHOWN = 3


def several(texts: Iterable[str]) -> list[str]:
    """Return the first texts, each once, and how many more there are."""
    different = list(dict.fromkeys(texts))
    more = len(different) - _SHOWN
    return different[:_SHOWN] + ([f"{more} more"] if more > 0 else [])
