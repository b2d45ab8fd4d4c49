"""Counts the framing bytes of an HTTP body: chunk sizes and extensions, trailers.

A parser buffers such a line until its end without a callback: without a limit, an endless line fills memory. Every
sidecar imports this.
"""

from __future__ import annotations


class Framing:
    """A counter: call `begin` after a head, `arrived` before parsing, `content` for each part, `end` at the end."""

    __slots__ = ("_inside", "size")

    def __init__(self) -> None:
        self.end()

    def begin(self) -> None:
        self._inside = True
        self.size = 0  # bytes since the last part of the content

    def arrived(self, size: int) -> None:
        if self._inside:
            self.size += size

    def content(self) -> None:
        self.size = 0

    def end(self) -> None:
        self._inside = False
        self.size = 0
