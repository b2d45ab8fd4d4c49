"""One running instance as the backend holds it: its process handle, its end, and its taking away."""

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
    """Known from before its process exists until nothing of it is left."""

    instance: Instance
    directory: InstanceDir
    record: Record
    began: float  # the loop's clock
    spawned: asyncio.Event = field(default_factory=asyncio.Event)  # the start is over, well or not
    exited: asyncio.Event = field(default_factory=asyncio.Event)
    exit_code: int | None = None  # None: not known, as of a process that an earlier gateway started
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
        """Calls `on_exit` once when the process has ended. Takes the descriptor over."""
        self._pidfd = pidfd
        self._process = process
        asyncio.get_running_loop().add_reader(pidfd, self._ended, on_exit)

    def kill(self) -> None:
        if self._pidfd is not None:
            pidfd_kill(self._pidfd)

    async def wait_exit(self, *, timeout: float) -> bool:
        """Whether the process has ended within `timeout` seconds; at once True when there is none."""
        if self._pidfd is None:
            return True
        try:
            async with asyncio.timeout(timeout):
                await self.exited.wait()
        except TimeoutError:
            return False
        return True

    def unwatch(self) -> None:
        """Lets go of the process, which may live on."""
        if self._pidfd is not None:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
        if self._process is not None and self._process.returncode is None:
            # Else Popen complains about a child that is meant to outlive this process.
            self._process.returncode = 0
        self._process = None

    def _ended(self, on_exit: Callable[[Entry], None]) -> None:
        if self._process is not None:
            self.exit_code = self._process.wait()
        self.unwatch()
        self.exited.set()
        on_exit(self)
