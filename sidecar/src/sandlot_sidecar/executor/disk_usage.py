"""What a sandbox holds of its disk, how much that may be, and who sees to it: the kernel, or a look now and then."""

from __future__ import annotations

import os
import time

from . import held

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .boot import Boot


class DiskUsage:
    """Of the root that is there now."""

    def __init__(self, boot: Boot) -> None:
        self._boot = boot
        self._plan = boot.plan

    @property
    def limited_by(self) -> str:
        """Who holds the sandbox to its disk: the `kernel` at the byte, or looks while commands run (`measured`)."""
        if not self._plan.overlay:
            return "none"
        return "kernel" if self._plan.store is None or self._plan.store.bounded else "measured"

    def quick(self, counted: list[int] | None) -> dict[str, Any] | None:
        """As `measure`, where no walk is needed; None where one is. `counted`: of the last answer."""
        store = self._plan.store
        if store is None:
            return {"used": 0, "files": 0, "limit": None}
        if not store.bounded:
            return None
        # At most as many files are there as were counted then and have been made since.
        number = held.newest(store.directory)
        count, at = counted or (0, number)
        files, limit = count + number - at, held.files_limit(self._plan.disk)
        return self._answer(self._used(), files, [count, at]) if files <= limit else None

    def measure(self, *, grows: bool) -> dict[str, Any]:
        """Bytes and files of the writable layer, and how many there may be of each.

        `grows`: there may be too many files already, and it is asked whether they grow: a count that stops where
        they are too many would not tell. `cost`: seconds of CPU that this took, a thread's own. `counted`: for the next look.
        """
        store = self._plan.store
        assert store is not None
        began = time.thread_time()
        number = held.newest(store.directory) if store.bounded else 0
        walk = held.Walk(most=held.COUNTED if grows else held.files_limit(self._plan.disk))
        walk.tree(self._boot.root.upper)
        if not store.bounded:
            walk.deleted(self._boot.home, device=self._boot.device)
        used = self._used() if store.bounded else walk.bytes
        answer = self._answer(used, walk.files, [walk.files, number])
        return {**answer, "cost": time.thread_time() - began}

    def _used(self) -> int:
        return held.space(self._boot.root.upper)[0]

    def _answer(self, used: int, files: int, counted: list[int]) -> dict[str, Any]:
        limit, store = self._plan.disk, self._plan.store
        return {
            "used": used,
            "files": files,
            "limit": limit,
            "hard": store is not None and store.bounded and limit is not None and store.size <= limit,
            "files_limit": held.files_limit(limit),
            "counted": counted,
        }

    def full(self) -> str | None:
        """`sandbox` where its own file system has no room left, `node` where one has none that is not its own."""
        root = self._boot.root
        upper = root.upper if root.upper >= 0 else os.open("/", held.DIRECTORY)
        try:
            if not held.is_full(upper):
                return None
        finally:
            if upper != root.upper:
                os.close(upper)
        return "sandbox" if self.limited_by == "kernel" else "node"
