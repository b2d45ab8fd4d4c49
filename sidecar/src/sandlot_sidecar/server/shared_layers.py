"""Offers the copy of a sandbox's files to other sandboxes of this machine, and opens another one's.

A copy lies in a mount namespace, which a path below /proc names for a process of the same machine and user.
"""

from __future__ import annotations

import _thread
import asyncio
import os

from ..core.errors import ApiError, bad_input

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

OFFERED = 30.0  # seconds in which the gateway opens the namespace
_CHANGED = "namespace: it is no longer there: its holder has closed it"


class Offer:
    """Holds the mount namespace of a process for a moment; then who has not opened it has lost the copy."""

    def __init__(self, pid: int, *, ended: Callable[[Offer], None]) -> None:
        """Hold it; `ended` is called when that is over. Raises OSError."""
        self._fd = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        self._ended = ended
        self._timer = asyncio.get_running_loop().call_later(OFFERED, self.withdraw)

    def document(self) -> dict[str, Any]:
        """Return the path of the namespace, and what shows that it is still the same one."""
        info = os.fstat(self._fd)
        return {
            "namespace": f"/proc/{os.getpid()}/fd/{self._fd}",
            "device": info.st_dev,
            "inode": info.st_ino,
        }

    def close(self) -> None:
        """Let go of the namespace, which another process holds now. Call it or `withdraw` once."""
        self._timer.cancel()
        os.close(self._fd)
        self._ended(self)

    def withdraw(self) -> None:
        """Let go of a namespace that nobody may have opened: in a thread, as the kernel then frees all of the copy."""
        self._timer.cancel()
        _thread.start_new_thread(os.close, (self._fd,))
        self._ended(self)


def opened(document: dict[str, Any]) -> int:
    """Return the mount namespace that a document names, which the caller closes. Raises ApiError."""
    path = document.get("namespace")
    if not isinstance(path, str) or not path.startswith("/proc/") or "\0" in path:
        raise bad_input("namespace must be a path below /proc", field="namespace")
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except ValueError as error:
        raise bad_input("namespace must be a path below /proc", field="namespace") from error
    except OSError as error:
        raise ApiError(409, "conflict", f"{_CHANGED} ({error.strerror})", field="namespace") from error
    info = os.fstat(fd)
    if (info.st_dev, info.st_ino) != (document.get("device"), document.get("inode")):
        os.close(fd)
        raise ApiError(409, "conflict", _CHANGED, field="namespace")
    return fd
