"""Defines what the agent needs of a container engine; sandlot_node.containerd is one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from .images import Auth, Image, ImageId, Progress

Report = Callable[[Progress], None]
Count = Callable[[int], None]


class Engine(Protocol):
    """Pulls images and puts their files where slots see them. Every call may raise ImageError.

    No two calls of `attach` and `release` for the same image run at once: the caller sees to it.
    """

    def fetched(
        self, reference: str, auth: Auth | None, report: Report, count: Count
    ) -> AbstractAsyncContextManager[ImageId]:
        """Pull with exactly these credentials, also when the node has the image; the block can attach it.

        `count` gets the bytes of each blob that the pull fetched, also if it failed.
        """
        ...

    async def attach(self, image_id: ImageId) -> Image:
        """Put a fetched image's files in place, whole or not at all; again: return what is there."""
        ...

    async def restore(self) -> list[Image]:
        """Return the images that an earlier agent put in place, after putting back those that lost their mount.

        An error of the kind UNAVAILABLE says nothing about the images; the caller tries again.
        """
        ...

    async def release(self, image_id: ImageId) -> None:
        """Remove an image's files; again: do nothing."""
        ...

    async def free(self) -> int:
        """Return the bytes that the file system of the images has left."""
        ...

    async def living(self) -> set[str] | None:
        """Return the names of the pods that run on this node; None: the engine cannot tell."""
        ...
