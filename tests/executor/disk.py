"""The disk of a sandbox as its own code sees it."""

from __future__ import annotations

from tests.executor.driver import Driver


def space(box: Driver) -> tuple[int, int]:
    """The bytes of the root's file system, and those that are free."""
    told = box.run(["stat", "--file-system", "--format=%b %f %S", "/"])
    blocks, free, size = map(int, told.stdout.split())
    return blocks * size, free * size
