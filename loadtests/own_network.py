"""Runs work in a new network namespace, where it may listen on every address. Needs root."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import struct
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from sandlot_sidecar.executor import syscalls

T = TypeVar("T")
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1


def missing() -> str | None:
    """Return why no namespace can be made here, or None."""
    return None if os.geteuid() == 0 else "needs root: a network of its own"


async def in_own_network(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `work()` in a thread and loop of its own, inside a new network namespace with its child processes.

    Raises OSError where there can be no such network. A cancellation ends `work`, too.
    """
    begun: Future[Callable[[], None]] = Future()  # what cancels it

    async def main() -> T:
        task = asyncio.current_task()
        assert task is not None
        cancel, loop = task.cancel, asyncio.get_running_loop()
        begun.set_result(lambda: loop.call_soon_threadsafe(cancel) and None)
        return await work()

    def run() -> T:
        # `unshare` moves only this thread and the processes it starts; other threads keep their network.
        try:
            _enter()
            return asyncio.run(main())
        finally:
            begun.cancel()

    with ThreadPoolExecutor(1, thread_name_prefix="own-network") as thread:
        done = asyncio.get_running_loop().run_in_executor(thread, run)
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            begun.add_done_callback(lambda found: None if found.cancelled() else found.result()())
            await asyncio.wait([done])
            done.exception()  # else asyncio logs it as one that nobody has looked at
            raise


def _enter() -> None:
    syscalls.unshare(syscalls.CLONE_NEWNET)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP))
