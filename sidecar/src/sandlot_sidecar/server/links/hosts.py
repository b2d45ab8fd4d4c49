"""Writes the names of services into the sandbox's /etc/hosts."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..executor_client import ExecutorClient

PATH = "/etc/hosts"
_MARK = b"# service of the group"
_MOST = 256 << 10  # bytes of the file that are kept; code may have made it larger


async def write(executor: ExecutorClient, services: list[dict[str, Any]]) -> None:
    """Put the services before all other names; lines of an earlier call go. Raises ExecutorError, ExecutorGone and OSError."""
    lines = [f"{service['address']}\t{service['name']}\t".encode() + _MARK for service in services]
    # In place: in a pod the file may be a mount, over which nothing can be renamed.
    _, (fd,) = await executor.ask(
        "file", descriptors=1, op="open", path=PATH, flags=os.O_RDWR | os.O_CREAT, mode="0644", parents=True
    )
    try:
        lines += [line for line in os.read(fd, _MOST).splitlines() if not line.endswith(_MARK)]
        os.ftruncate(fd, 0)
        os.lseek(fd, 0, os.SEEK_SET)
        left = memoryview(b"\n".join(lines) + b"\n")
        while left:
            left = left[os.write(fd, left) :]
    finally:
        os.close(fd)
