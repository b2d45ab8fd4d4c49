"""What roots are built from: an image, the writable layer's place and size."""

from __future__ import annotations

from .gpus import Gpus
from .image import Image
from .shared import Shared

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .store import Store


class Plan:
    """The validated config `root`."""

    def __init__(self, spec: dict[str, Any], *, target: bool) -> None:
        self.image = Image(spec, in_pod=target)
        self.overlay = bool(spec.get("overlay", True))
        self.disk = spec.get("disk")
        self.target = target
        self.lays_images = spec.get("images") is not None
        self.gpus = Gpus(spec["gpus"]) if spec.get("gpus") else None
        self.store: Store | None = None  # holds the writable layer; None: in memory

    def claimed(self, message: dict[str, Any], fds: list[int]) -> Image | None:
        """Return the image that a request names, or with `shared` this one below the layer of its descriptor."""
        if message.get("shared"):
            return self.image.below(Shared(fds[0]))
        spec = message.get("image")
        return None if spec is None else Image(spec, in_pod=self.target)

    def fall_back(self, reason: str) -> list[str]:
        """Fall back after a failure to an upper layer in memory, then to no overlay; return notes."""
        if self.store is not None:
            self.store = None
            return [
                f"root: changes are kept in memory, the kernel rejects an overlay on the volume: {reason}"
            ]
        self.overlay = False
        return [f"root: no overlay here, changes are made to the container itself: {reason}"]
