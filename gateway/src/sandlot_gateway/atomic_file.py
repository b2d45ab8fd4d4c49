"""Writes small files atomically."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_atomic(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Write a file with mode 0600, so that readers see either the old or the new content. Raises OSError.

    `durable`: sync it before it gets its name, for what must survive a crash of the machine.
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
