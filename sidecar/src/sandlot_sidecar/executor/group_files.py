"""Reads and writes the files of control groups."""

from __future__ import annotations

import os


def write_file(directory: int, name: str, text: str) -> None:
    """Write a file of a group; raises OSError."""
    fd = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=directory)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def read_file(directory: int, name: str) -> str:
    """Read a file of a group; raises OSError."""
    fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
    try:
        parts = []
        while part := os.read(fd, 65536):
            parts.append(part)
        return b"".join(parts).decode("ascii", "replace")
    finally:
        os.close(fd)


def field(text: str, name: str) -> int:
    """Return the number after a name in a flat keyed file; 0 if the name is missing."""
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0
