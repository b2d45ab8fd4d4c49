"""Writes small files so that nobody ever reads half of one."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_whole(path: Path, data: bytes, *, durable: bool = False) -> None:
    """For its owner to read; a reader gets the content of before, or this. Raises OSError.

    `durable`: on the disk before it has its name, for what must survive the machine.
    """
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    try:
        fd = os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
