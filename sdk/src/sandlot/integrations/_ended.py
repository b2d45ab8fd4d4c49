"""Ends the sandbox of an object when it is told to, when the framework has dropped the object, or with the process."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import weakref
from queue import SimpleQueue

from sandlot._sync.client import CLEANUP, Client
from sandlot._sync.sandbox import Sandbox
from sandlot.errors import SandlotError

BATCH = 500  # sandboxes of a request

_lock = threading.Lock()
_workers: set[int] = set()  # processes that have one: threads do not survive a fork
_dropped: SimpleQueue[Sandbox] = SimpleQueue()
_left: dict[tuple[int, str], Sandbox] = {}


class SandboxEnd:
    """The end of the sandbox of an `owner`.

    An unreachable server is no error: the sandbox then ends by its own time limit.
    """

    def __init__(self, owner: object, box: Sandbox) -> None:
        self._box = box
        _left[os.getpid(), box.id] = box
        _start_worker()
        # Garbage collection may interrupt any code, also the SDK's with its locks: only this queue's `put` is safe in it.
        self._dropped = weakref.finalize(owner, _dropped.put, box)
        self._dropped.atexit = False

    def now(self) -> None:
        """Delete the sandbox, once."""
        if self._dropped.detach() is not None:
            _end(self._box)


def _end(box: Sandbox) -> None:
    with contextlib.suppress(SandlotError):
        box.delete()
    _left.pop((os.getpid(), box.id), None)


def _start_worker() -> None:
    pid = os.getpid()
    with _lock:
        if pid in _workers:
            return
        _workers.add(pid)
        threading.Thread(target=_work, name="sandlot-ends", daemon=True).start()
        atexit.register(_end_left, pid)


def _work() -> None:
    while True:
        _end(_dropped.get())


def _end_left(pid: int) -> None:
    """Delete what this process still has, with a request for each server and a short wait for it."""
    if pid != os.getpid():
        return  # a fork's copy
    found: dict[Client, list[str]] = {}
    for owner, box in list(_left.items()):
        if owner[0] == pid:
            found.setdefault(box.client, []).append(box.id)
    for client, ids in found.items():
        for begin in range(0, len(ids), BATCH):
            body = {"sandbox_ids": ids[begin : begin + BATCH]}
            with contextlib.suppress(SandlotError):
                client.call("DELETE", "/sandbox", body=body, timeout=CLEANUP, patience=CLEANUP)
