"""Writes the names of services into the sandbox's /etc/hosts."""

from __future__ import annotations

import os

from ...core.errors import ApiError

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
    before = await _read(executor)
    lines += [line for line in before.splitlines() if not line.endswith(_MARK)]
    answer, (fd,) = await executor.ask("file", descriptors=1, op="create", path=PATH, mode="0644")
    try:
        left = memoryview(b"\n".join(lines) + b"\n")
        try:
            while left:
                left = left[os.write(fd, left) :]
        finally:
            os.close(fd)
        await executor.ask("file", op="commit", temp=answer["temp"], path=PATH)
    except BaseException:
        await executor.ask("file", op="abort", temp=answer["temp"])
        raise


async def _read(executor: ExecutorClient) -> bytes:
    try:
        _, (fd,) = await executor.ask("file", descriptors=1, op="open", path=PATH)
    except ApiError:  # an image without it, or an owner that made something else of it
        return b""
    try:
        return os.read(fd, _MOST)
    finally:
        os.close(fd)
