"""The child process that writes or restores a layer's archive."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import sys

from ..core.errors import SidecarError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PIECE = 256 * 1024
MODULE = "sandlot_sidecar.layer"
_LAYER_FD = 3  # the first
# As this process was started: without them its byte code would be compiled anew.
_FLAGS = [*(["-S"] if sys.flags.no_site else []), *(["-OO"] if sys.flags.optimize > 1 else [])]


class LayerProcess:
    """One run of `sandlot_sidecar.layer`; asyncio's own subprocesses are not loaded in a sidecar (lean.py)."""

    def __init__(
        self, job: str, *, layers: Sequence[int], limit: int | None, selection: str | None = None
    ) -> None:
        """Start the process; the caller keeps `layers`, `selection` is JSON. Raises OSError."""
        self._loop = asyncio.get_running_loop()
        theirs_in, self._stdin = os.pipe2(os.O_CLOEXEC)
        self._stdout, theirs_out = os.pipe2(os.O_CLOEXEC)
        targets = range(_LAYER_FD, _LAYER_FD + len(layers))
        named = ",".join(map(str, targets))
        argv = [sys.executable, *_FLAGS, "-P", "-m", MODULE, job, named, "" if limit is None else str(limit)]
        if selection is not None:
            argv.append(selection)
        actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate((theirs_in, theirs_out))]
        try:
            # Above the targets of the copies: else a copy could be closed again at the exec.
            sources: list[int] = []
            try:
                sources += [_above(layer) for layer in layers]
                copies = [(os.POSIX_SPAWN_DUP2, *pair) for pair in zip(sources, targets, strict=True)]
                self.pid = os.posix_spawn(sys.executable, argv, os.environ, file_actions=[*actions, *copies])
            finally:
                for source in sources:
                    os.close(source)
        except OSError:
            os.close(self._stdin)
            os.close(self._stdout)
            raise
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        os.set_blocking(self._stdin, False)
        os.set_blocking(self._stdout, False)
        self._status: int | None = None

    async def read(self) -> bytes:
        """Return a piece of the process's output; b"" at the end."""
        while True:
            try:
                return os.read(self._stdout, PIECE)
            except BlockingIOError:
                await self._ready(self._stdout, self._loop.add_reader, self._loop.remove_reader)

    async def write(self, data: bytes) -> None:
        """Write to the process and wait while its pipe is full. Raises BrokenPipeError if it has closed its input."""
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._stdin, view) :]
            except BlockingIOError:
                await self._ready(self._stdin, self._loop.add_writer, self._loop.remove_writer)

    def close_stdin(self) -> None:
        """Signal end of file."""
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1

    async def wait(self) -> int:
        """Wait for the exit status, which is negative for a signal."""
        if self._status is None:
            handle = os.pidfd_open(self.pid)
            try:
                await self._ready(handle, self._loop.add_reader, self._loop.remove_reader)
            finally:
                os.close(handle)
            self._reap()
        assert self._status is not None
        return self._status

    def close(self) -> None:
        """Kill the process if it still runs, and release everything."""
        self.close_stdin()
        os.close(self._stdout)
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)
            self._reap()

    def _reap(self) -> None:
        try:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        except ChildProcessError as error:
            raise SidecarError(
                "the exit status of the layer process is lost: other code has waited for it"
            ) from error

    async def _ready(self, fd: int, add: Callable[..., None], remove: Callable[[int], bool]) -> None:
        waiter = self._loop.create_future()
        add(fd, _wake, waiter)
        try:
            await waiter
        finally:
            remove(fd)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _above(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10)
