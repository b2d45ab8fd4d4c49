"""Stands in for matplotlib.pyplot in a sandbox: open figures that can be saved and closed."""

from __future__ import annotations

from typing import Any

_figures: dict[int, Any] = {}
_count = 0


class Figure:
    def __init__(self, number: int) -> None:
        self.number = number

    def savefig(self, file: Any, *, format: str, bbox_inches: str) -> None:
        file.write(f"{format.upper()} of {self.number}".encode())


def figure(number: int | None = None) -> Figure:
    global _count
    if number is None:
        _count += 1
        _figures[_count] = Figure(_count)
        return _figures[_count]
    return _figures[number]


def get_fignums() -> list[int]:
    return list(_figures)


def close(figure: Figure) -> None:
    del _figures[figure.number]


def show() -> None:
    raise AssertionError("the context replaces this")
