"""Deletes directory trees: of any depth, or at once if they hold little."""

from __future__ import annotations

import os
from itertools import islice

FEW_ENTRIES = 64
# Bytes, on the disk or in memory: the kernel may take long for more.
SMALL_FILE = 1 << 20
SMALL_DIRECTORY = 64 << 10  # it keeps its size when its entries are deleted
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def delete_tree(name: str) -> None:
    """Delete a tree in the working directory, without following symlinks; restores the working directory."""
    stack = [name]
    down = True
    while stack:
        if down:
            fd = os.open(stack[-1], _DIRECTORY)
            os.fchdir(fd)
            os.close(fd)
        directories = []
        with os.scandir(".") as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    directories.append(entry.name)
                    break
                os.unlink(entry.name)
        if directories:
            stack.append(directories[0])
            down = True
            continue
        os.chdir("..")
        os.rmdir(stack.pop())
        down = False


def delete_little_tree(name: str, *, directory: int, entries: int = FEW_ENTRIES) -> int | None:
    """Delete a tree of at most so many entries, all of them small; return how many more it could have had.

    Return None if it holds more, of which some may be deleted then. Raises OSError.
    """
    fd = os.open(name, _DIRECTORY, dir_fd=directory)
    try:
        if _bytes(os.fstat(fd)) > SMALL_DIRECTORY:
            return None
        with os.scandir(fd) as found:
            # All before the first deletion, which may change what the directory lists.
            listed = list(islice(found, entries + 1))
        left: int | None = entries - len(listed)
        for entry in listed:
            if left is None or left < 0:
                return None
            if entry.is_dir(follow_symlinks=False):
                left = delete_little_tree(entry.name, directory=fd, entries=left)
            elif _bytes(entry.stat(follow_symlinks=False)) > SMALL_FILE:
                return None
            else:
                os.unlink(entry.name, dir_fd=fd)
    finally:
        os.close(fd)
    if left is not None:
        os.rmdir(name, dir_fd=directory)
    return left


def _bytes(info: os.stat_result) -> int:
    """Return how much a file may hold: of a sparse one, holes that were read take memory."""
    return max(info.st_size, info.st_blocks * 512)
