"""Counts what a peer sends of an HTTP body beside its content: chunks' sizes and extensions, a trailer.

A parser keeps a line of these until its end and calls nobody: without a bound a line without an end fills memory. Every
sidecar imports this.
"""

from __future__ import annotations


class Framing:
    """`begin` after a message's head, `arrived` before bytes are parsed, `content` for each part, `end` after the last."""

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
