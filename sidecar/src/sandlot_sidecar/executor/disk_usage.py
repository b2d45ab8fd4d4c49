"""A sandbox's disk usage and limit, which the kernel or periodic measurements enforce."""

from __future__ import annotations

import os
import time

from . import disk_space

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .boot import Boot


class DiskUsage:
    """The disk usage of the current root."""

    def __init__(self, boot: Boot) -> None:
        self._boot = boot
        self._plan = boot.plan

    @property
    def limited_by(self) -> str:
        """What enforces the disk limit: the `kernel` exactly, or measurements while ops run (`measured`)."""
        if not self._plan.overlay:
            return "none"
        return "kernel" if self._plan.store is None or self._plan.store.bounded else "measured"

    def quick(self, counted: list[int] | None) -> dict[str, Any] | None:
        """Measure as `measure` does, but return None if that needs a walk. `counted`: of the last answer."""
        store = self._plan.store
        if store is None:
            return {"used": 0, "files": 0, "limit": None}
        if not store.bounded:
            return None
        # Upper bound: the files counted then plus those created since.
        number = disk_space.newest_inode(store.directory)
        count, at = counted or (0, number)
        files, limit = count + number - at, disk_space.files_limit(self._plan.disk)
        return self._answer(self._used(), files, [count, at]) if files <= limit else None

    def measure(self, *, grows: bool) -> dict[str, Any]:
        """Measure the bytes and files of the writable layer; return them with their limits.

        `grows`: count beyond the limit, to see whether too many files still grow. In the answer, `cost` is the CPU
        seconds of this thread, and `counted` is for the next call of `quick`.
        """
        store = self._plan.store
        assert store is not None
        began = time.thread_time()
        number = disk_space.newest_inode(store.directory) if store.bounded else 0
        walk = disk_space.Walk(
            most=disk_space.MAX_COUNTED if grows else disk_space.files_limit(self._plan.disk)
        )
        walk.add_tree(self._boot.root.upper)
        if not store.bounded:
            walk.add_deleted(self._boot.home, device=self._boot.device)
        used = self._used() if store.bounded else walk.bytes
        answer = self._answer(used, walk.files, [walk.files, number])
        return {**answer, "cost": time.thread_time() - began}

    def _used(self) -> int:
        return disk_space.space(self._boot.root.upper)[0]

    def _answer(self, used: int, files: int, counted: list[int]) -> dict[str, Any]:
        limit, store = self._plan.disk, self._plan.store
        return {
            "used": used,
            "files": files,
            "limit": limit,
            "hard": store is not None and store.bounded and limit is not None and store.size <= limit,
            "files_limit": disk_space.files_limit(limit),
            "counted": counted,
        }

    def full(self) -> str | None:
        """Return `sandbox` if its own file system is full, `node` if a shared one is, else None."""
        root = self._boot.root
        upper = root.upper if root.upper >= 0 else os.open("/", disk_space.DIRECTORY)
        try:
            if not disk_space.is_full(upper):
                return None
        finally:
            if upper != root.upper:
                os.close(upper)
        return "sandbox" if self.limited_by == "kernel" else "node"

    def seen(self) -> dict[str, int | None]:
        """Return the used bytes and the size of the sandbox's own file system; None: it has none."""
        if self.limited_by != "kernel":
            return {"disk": None, "disk_size": None}
        used, size, _ = disk_space.space(self._boot.root.upper)
        return {"disk": used, "disk_size": size}
