"""Makes, opens and removes the directories of control groups."""

from __future__ import annotations

import os

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def make_group(parent: int, name: str) -> int:
    """Make a group, unless an earlier sidecar has, and open it; raises OSError, also if the parent's memory is full."""
    try:
        os.mkdir(name, dir_fd=parent)
    except FileExistsError:
        pass
    return os.open(name, DIRECTORY, dir_fd=parent)


def open_group(parent: int, name: str) -> int | None:
    """Open a group, or return None if there is none; raises OSError."""
    try:
        return os.open(name, DIRECTORY, dir_fd=parent)
    except FileNotFoundError:
        return None


def remove_group(parent: int, name: str) -> bool:
    """Remove a group and its empty child groups; return False while a member is left."""
    try:
        os.rmdir(name, dir_fd=parent)
        return True
    except FileNotFoundError:
        return True
    except OSError:
        pass
    try:
        directory = os.open(name, DIRECTORY, dir_fd=parent)
    except OSError:
        return False
    try:
        for entry in os.scandir(directory):
            if entry.is_dir(follow_symlinks=False):
                remove_group(directory, entry.name)
    finally:
        os.close(directory)
    try:
        os.rmdir(name, dir_fd=parent)
    except OSError:
        return False
    return True
