"""Records which copies in memory sandboxes still mount: until the last of them has ended, a copy counts for its tenant.

A document of each copy lies in the gateway's state directory, since the sandboxes outlive their gateway.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection
from pathlib import Path

import msgspec

from sandlot_gateway.atomic_file import write_atomic

_FOUND_WITHIN = 300.0  # seconds in which a gateway finds all sandboxes of the one before


class _InUse(msgspec.Struct, frozen=True):
    tenant: str
    bytes: int


class CopiesInUse:
    """`users` returns the checkpoints that live sandboxes began with; it is called in threads."""

    def __init__(self, directory: Path, *, users: Callable[[], Collection[str]]) -> None:
        self._directory = directory
        self._users = users
        self._kept_until = time.monotonic() + _FOUND_WITHIN
        self._held = set[str]()  # those that have a checkpoint still, which counts for them
        self._copies: dict[str, _InUse] = self._read()
        self._found = set(self._copies)  # those of the gateway before

    def add(self, checkpoint_id: str, *, tenant: str, size: int) -> None:
        """Record a copy, before any sandbox mounts it. Raises OSError."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        copy = _InUse(tenant, size)
        write_atomic(self._path(checkpoint_id), msgspec.json.encode(copy), durable=True)
        self._held.add(checkpoint_id)
        self._copies[checkpoint_id] = copy

    def let_go(self, checkpoint_id: str) -> None:
        """Count the copy from now on, since its checkpoint is about to be deleted."""
        self._held.discard(checkpoint_id)

    def sizes(self) -> list[tuple[str, int]]:
        """Return the tenant and the bytes of each copy that only sandboxes hold; forget those that none does."""
        left = self._copies.keys() - self._held
        if not left:
            return []
        unsure = self._found if time.monotonic() < self._kept_until else set[str]()
        for checkpoint_id in left.difference(self._users(), unsure):
            self._copies.pop(checkpoint_id, None)
            with contextlib.suppress(OSError):  # the next gateway forgets it
                self._path(checkpoint_id).unlink()
        found = {checkpoint_id: self._copies.get(checkpoint_id) for checkpoint_id in left}
        return [(copy.tenant, copy.bytes) for copy in found.values() if copy is not None]

    def _path(self, checkpoint_id: str) -> Path:
        return self._directory / f"{checkpoint_id}.json"

    def _read(self) -> dict[str, _InUse]:
        found: dict[str, _InUse] = {}
        for path in self._directory.glob("cp-*.json"):
            with contextlib.suppress(OSError, msgspec.DecodeError):
                found[path.stem] = msgspec.json.decode(path.read_bytes(), type=_InUse)
        return found
