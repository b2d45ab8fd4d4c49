"""The copies of this gateway's own that lie in this machine's memory, where the sandboxes that begin with them mount them.

A copy is a mount namespace with one file system, which the kernel frees with its last holder: this gateway, then the
roots over it. So a copy ends with its gateway, whatever ends that, and the document of one without a gateway is void.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import TypeVar

import msgspec

from sandlot_gateway.checkpoints.checkpoint import Checkpoint
from sandlot_gateway.checkpoints.copies_in_use import CopiesInUse
from sandlot_gateway.checkpoints.part import Part
from sandlot_gateway.checkpoints.transfer import Fetched, Refused, refused
from sandlot_gateway.core.bad_json import NOT_JSON
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.data.pool import DialError, HttpPool, UpstreamError
from sandlot_gateway.tasks import in_thread

_COPYING = 600.0  # seconds until a sidecar has copied all
_LETTING_GO = 10.0
_T = TypeVar("_T")


class Copy(msgspec.Struct, frozen=True):
    """What a copy has, and the descriptor of its mount namespace."""

    has: Fetched
    namespace: int


class _Told(msgspec.Struct):
    """A sidecar's answer: where a copy is, and what shows that it is still the same one."""

    entries: int
    bytes: int
    namespace: str
    device: int
    inode: int


async def measured(pool: HttpPool, instance: Instance, *, max_bytes: int) -> Fetched:
    """Return what a copy of a sandbox's files would have.

    Raises Refused, also if only an archive of them can be had, DialError and UpstreamError.
    """
    body = await _fetch(pool, instance, "GET", f"/v1/share?max_bytes={max_bytes}")
    return _decoded(body, Fetched)


async def copied(pool: HttpPool, instance: Instance, *, entries: int, room: int) -> Copy:
    """Have a sidecar of this machine copy its files, measured as `entries`, into `room` bytes of memory.

    Return the copy, whose descriptor the caller closes. Raises as `measured` does.
    """
    body = await _fetch(pool, instance, "POST", f"/v1/share?max_bytes={room}&entries={entries}")
    told = _decoded(body, _Told)
    try:
        namespace = os.open(told.namespace, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise Refused(f"the copy cannot be opened: {error.strerror}") from error
    try:
        info = os.fstat(namespace)
        if (info.st_dev, info.st_ino) != (told.device, told.inode):
            raise Refused("the sidecar has let go of the copy before it was opened")
        with contextlib.suppress(DialError, UpstreamError, Refused):  # else it does so a moment later
            await _fetch(pool, instance, "DELETE", "/v1/share", timeout=_LETTING_GO)
    except BaseException:
        await asyncio.to_thread(os.close, namespace)
        raise
    return Copy(Fetched(told.entries, told.bytes), namespace)


async def _fetch(
    pool: HttpPool, instance: Instance, method: str, target: str, *, timeout: float = _COPYING
) -> bytes:
    headers = [("authorization", f"Bearer {instance.token}")]
    answer = await pool.fetch(
        instance.address, method, target, headers=headers, timeout=timeout, known_alive=True
    )
    if answer.status != 200:
        raise refused(answer.body, status=answer.status)
    return answer.body


def _decoded(body: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(body, type=kind)
    except NOT_JSON as error:
        raise Refused(f"the sandbox's sidecar sent an invalid answer: {error}") from error


class _Held(msgspec.Struct, frozen=True):
    """Descriptors: of the copy, and of the locked file that shows that its gateway is alive."""

    namespace: int
    lock: int

    def close(self) -> None:
        os.close(self.namespace)
        os.close(self.lock)


class SharedCopies:
    """What this gateway holds. The last holder's close frees the memory, which takes its time: it is done in a thread."""

    def __init__(
        self, in_use: CopiesInUse | None = None, *, possible: Callable[[], bool] = lambda: False
    ) -> None:
        """`possible`: whether all sandboxes could mount one now."""
        self.possible = possible
        self._in_use = in_use
        self._held: dict[tuple[str, float], _Held] = {}  # a later checkpoint may have the same id

    async def keep(self, checkpoint: Checkpoint, copy: Copy, part: Part) -> None:
        """Keep a copy, which is this object's from now on, and the lock of its checkpoint's file. Raises OSError."""
        try:
            if self._in_use is not None:
                await in_thread(
                    self._in_use.add, checkpoint.id, tenant=checkpoint.tenant, size=copy.has.bytes
                )
            lock = os.dup(part.fd)
        except BaseException:
            if self._in_use is not None:
                self._in_use.let_go(checkpoint.id)
            await asyncio.to_thread(os.close, copy.namespace)
            raise
        self._held[checkpoint.id, checkpoint.created_at] = _Held(copy.namespace, lock)

    @property
    def is_empty(self) -> bool:
        return not self._held

    def document(self, checkpoint: Checkpoint) -> bytes | None:
        """Return what tells a sidecar of this machine where a copy is; None if it has gone."""
        held = self._held.get((checkpoint.id, checkpoint.created_at))
        if held is None:
            return None
        info = os.fstat(held.namespace)
        path = f"/proc/{os.getpid()}/fd/{held.namespace}"
        return msgspec.json.encode({"namespace": path, "device": info.st_dev, "inode": info.st_ino})

    async def drop(self, checkpoint: Checkpoint) -> bool:
        """Let go of a copy; return whether it was held."""
        held = self._held.pop((checkpoint.id, checkpoint.created_at), None)
        if held is None:
            return False
        if self._in_use is not None:  # by its id alone: a later checkpoint has it only after the close below
            self._in_use.let_go(checkpoint.id)
        await in_thread(held.close)
        return True

    def close(self) -> None:
        """Let go of all; idempotent."""
        held, self._held = self._held, {}
        for one in held.values():
            one.close()
