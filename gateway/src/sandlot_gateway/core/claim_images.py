"""The interface of backends whose instances take their image with a claim."""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from .instances import Instance, Laid


@dataclass(frozen=True, slots=True)
class ClaimImage:
    """An image that is prepared for a claim, with what its configuration says of its main process.

    `document`: the `image` of the claim, see "Image" in docs/sidecar-contract.md.
    """

    document: dict[str, Any]
    command: tuple[str, ...] | None = ()  # ENTRYPOINT and CMD; None: unknown
    stop_signal: str = ""  # as the image names it; "": it names none

    @property
    def id(self) -> str:
        return self.document["id"]


def joined_command(entrypoint: Sequence[str], cmd: Sequence[str]) -> tuple[str, ...]:
    """Return the command of a container, as Docker joins an image's ENTRYPOINT (`[""]` is none) and CMD."""
    return (*(() if list(entrypoint) == [""] else entrypoint), *cmd)


class ClaimImages(Protocol):
    """The part of a backend that prepares images for claims, used with `Backend.lays_images`."""

    def image_ahead(self, image: str) -> Coroutine[Any, Any, object] | None:
        """Return the preparation of an image for a create that has no instance yet; None if its place must be known.

        It raises BackendError.
        """
        ...

    async def claim_image(
        self, image: str, *, tenant: str, instance: Instance, with_config: bool = False
    ) -> ClaimImage | None:
        """Prepare an image for a granted instance; return None if it has the image.

        `with_config`: the image's configuration is needed; None then means that the instance cannot take another.
        Takes about a second at most. Raises BackendError, NodeFailed, StillPreparing.
        """
        ...

    def image_progress(self, image: str, *, tenant: str) -> str | None:
        """Return how far the preparation of an image for this tenant's creates is, or None if none runs."""
        ...

    def image_laid(self, instance: Instance, *, before: Laid | None) -> None:
        """Note that a claim has laid another image than `before` in this instance. Return at once."""

    def image_unlaid(self, instance: Instance, image_id: str) -> None:
        """Note that a claim did not lay the image that `claim_image` returned for this instance. Return at once."""

    def nodes_with(self, image: str) -> Collection[str]:
        """Return the nodes that have the image prepared for a claim, as far as known."""
        ...
