"""One running instance: its process handle, its exit and its removal."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field

from ...core.instances import Instance
from .layout import InstanceDir
from .processes import pidfd_kill
from .records import Record


@dataclass(slots=True, eq=False)
class Entry:
    """Exists from before the process starts until everything of it is removed."""

    instance: Instance
    directory: InstanceDir
    record: Record
    began: float  # on the loop's clock
    mounts_copies: bool = True  # an earlier version's sidecar does not
    spawned: asyncio.Event = field(default_factory=asyncio.Event)  # the start has succeeded or failed
    exited: asyncio.Event = field(default_factory=asyncio.Event)
    exit_code: int | None = None  # None: unknown, for a process that an earlier gateway started
    leaving: asyncio.Task[None] | None = None
    _pidfd: int | None = None
    _process: subprocess.Popen[bytes] | None = None

    def watch(
        self,
        pidfd: int,
        *,
        process: subprocess.Popen[bytes] | None,
        on_exit: Callable[[Entry], None],
    ) -> None:
        """Call `on_exit` once when the process ends. Takes ownership of the descriptor."""
        self._pidfd = pidfd
        self._process = process
        asyncio.get_running_loop().add_reader(pidfd, self._ended, on_exit)

    def kill(self) -> None:
        if self._pidfd is not None:
            pidfd_kill(self._pidfd)

    async def wait_exit(self, *, timeout: float) -> bool:
        """Wait up to `timeout` seconds; return whether the process has ended (at once if there is none)."""
        if self._pidfd is None:
            return True
        try:
            async with asyncio.timeout(timeout):
                await self.exited.wait()
        except TimeoutError:
            return False
        return True

    def unwatch(self) -> None:
        """Release the process, which may live on."""
        if self._pidfd is not None:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
        if self._process is not None and self._process.returncode is None:
            # Otherwise Popen warns about a child that is meant to outlive this process.
            self._process.returncode = 0
        self._process = None

    def _ended(self, on_exit: Callable[[Entry], None]) -> None:
        if self._process is not None:
            self.exit_code = self._process.wait()
        self.unwatch()
        self.exited.set()
        on_exit(self)
