"""Deletes a directory tree of any depth."""

from __future__ import annotations

import os


def delete_tree(name: str) -> None:
    """Delete a tree in the working directory, without following symlinks; restores the working directory."""
    stack = [name]
    down = True
    while stack:
        if down:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(stack[-1], flags)
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
