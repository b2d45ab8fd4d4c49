# This file is auto-generated from sdk/src/sandlot/_async/warmups.py by tools/async_to_sync.py: do not change it.
"""Image warm-ups: the server prepares the images of a data set before sandboxes need them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import cast

from sandlot._protocol import checks, documents
from sandlot._sync.client import Client, default_client
from sandlot._tasks_sync import now, sleep
from sandlot.errors import WaitTimeout
from sandlot.models import WarmupInfo

LOOK_SECONDS = 0.5


class ImageWarmups:
    """The warm-ups of this key's tenant; those of all tenants with the role `operate`."""

    def __init__(self, *, client: Client | None = None) -> None:
        self._client = client

    def create(self, images: Mapping[str, int] | Iterable[str]) -> WarmupInfo:
        """Begin to prepare images; returns at once.

        `images` maps each name to how often it occurs, or lists names, where a repeated one counts again. On
        Kubernetes frequent images go to every node, rare ones to few. At most 5,000 different images.
        """
        body = {"images": [{"image": image, "weight": weight} for image, weight in _counts(images).items()]}
        client = self._connected()
        return documents.warmup_info(client.call("POST", "/image-warmups", body=body))

    def list(self) -> list[WarmupInfo]:
        """Return the warm-ups, the oldest first; finished ones for an hour."""
        document = (self._connected()).call("GET", "/image-warmups")
        return [documents.warmup_info(item) for item in document.get("warmups") or ()]

    def get(self, warmup_id: str) -> WarmupInfo:
        """Return a warm-up with its progress. Raises NotFound."""
        return documents.warmup_info((self._connected()).call("GET", _path(warmup_id)))

    def delete(self, warmup_id: str) -> None:
        """Stop and forget a warm-up; images that are ready stay. Raises NotFound."""
        (self._connected()).call("DELETE", _path(warmup_id))

    def wait(
        self,
        warmup_id: str,
        *,
        timeout: float | None = None,
        progress: Callable[[WarmupInfo], None] | None = None,
    ) -> WarmupInfo:
        """Wait until each image is ready or has failed; `progress` is called after each poll.

        Raises NotFound, WaitTimeout after `timeout` seconds. Images that failed are in the result's `errors`.
        """
        checks.seconds(timeout, name="timeout")
        deadline = None if timeout is None else now() + timeout
        while True:
            warmup = self.get(warmup_id)
            if progress is not None:
                progress(warmup)
            if warmup.done:
                return warmup
            if deadline is not None and now() + LOOK_SECONDS > deadline:
                reason = f": {warmup.message}" if warmup.message else ""
                raise WaitTimeout(
                    f"warm-up {warmup_id} has {warmup.ready} of {warmup.images} images ready after "
                    f"{timeout:g} s{reason}"
                )
            sleep(LOOK_SECONDS)

    def _connected(self) -> Client:
        if self._client is None:
            self._client = default_client()
        return self._client


def _counts(images: Mapping[str, int] | Iterable[str]) -> Mapping[str, int]:
    if isinstance(images, str):
        raise ValueError("images: must be a dictionary or a list of names, not one string")
    return cast("Mapping[str, int]", images) if isinstance(images, Mapping) else Counter(images)


def _path(warmup_id: str) -> str:
    return f"/image-warmups/{checks.path_part(warmup_id, name='warmup_id')}"
