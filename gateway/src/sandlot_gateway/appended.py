"""Appends lines to files that only this process writes."""

from __future__ import annotations

import errno
import os


def append_line(fd: int, line: bytes) -> None:
    """Append a line, or nothing of it: the next one would continue half a line. Raises OSError."""
    written = os.write(fd, line)
    if written < len(line):
        os.ftruncate(fd, os.fstat(fd).st_size - written)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
