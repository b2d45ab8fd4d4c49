"""What roots are built from: the config's `root`, and what the first root read for all later ones."""

from __future__ import annotations

import os

from .errors import SetupError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from . import container_mounts
    from .store import Store


class Plan:
    """The validated config `root`."""

    def __init__(self, spec: dict[str, Any], *, target: bool) -> None:
        lower = spec.get("lower") or ["/"]
        if not isinstance(lower, list) or not all(isinstance(p, str) and p.startswith("/") for p in lower):
            raise SetupError("root.lower must be a list of absolute paths")
        for path in lower:
            if not os.path.isdir(path):
                raise SetupError(f"root.lower: {path} is not a directory")
        self.lower: list[str] = lower
        self.mask = [os.path.normpath(path) for path in spec.get("mask") or []]
        self.overlay = bool(spec.get("overlay", True))
        self.disk = spec.get("disk")
        self.host = lower == ["/"] and not target
        self.target = target
        self.store: Store | None = None  # holds the writable layer; None: in memory
        # Read for the first root and reused for all later ones.
        self.container_mounts: container_mounts.ContainerMounts | None = None
        self.network_files: tuple[bytes, bytes] | None = None
        self.seen: dict[str, os.stat_result | None] = {}
        self.top: set[str] | None = None

    def fall_back(self, reason: str) -> list[str]:
        """Fall back after a failure to an upper layer in memory, then to no overlay; return notes."""
        if self.store is not None:
            self.store = None
            return [
                f"root: changes are kept in memory, the kernel rejects an overlay on the volume: {reason}"
            ]
        self.overlay = False
        return [f"root: no overlay here, changes are made to the container itself: {reason}"]
