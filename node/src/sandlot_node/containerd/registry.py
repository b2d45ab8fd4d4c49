"""Images as containerd names them: pull, status, removal, and the mark that keeps the kubelet from removing one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.field_mask_pb2 import FieldMask

from sandlot_node.images import Auth, ImageId
from sandlot_node.protos import cri_pb2, images_pb2

from .client import Client, Missing

_CRI = "/runtime.v1.ImageService"
_IMAGES = "/containerd.services.images.v1.Images"
_PINNED = "io.cri-containerd.pinned"
# containerd 2.1 looks at this annotation, 2.4 at the image's `runtime_handler`, but only in a request with a
# sandbox's configuration.
_HANDLER = "io.containerd.cri.runtime-handler"
_MOST_DIGESTS = 100  # names of an image with a digest that are told, in containerd's order


@dataclass(frozen=True, kw_only=True)
class Status:
    """What the CRI knows of an image: the id of its topmost layer, its configuration, some of its names with a digest."""

    chain: str
    document: Mapping[str, Any]
    digests: tuple[str, ...]


class Registry:
    """containerd's images, by its CRI where that has a call, so that the node's configuration of registries holds.

    `handler`: the runtime handler into whose snapshotter images are pulled; None: into the default one.
    `server_of`: the URL of the one server that credentials for an image are for; None: the node's configuration says.
    """

    def __init__(
        self,
        client: Client,
        *,
        pull_seconds: float,
        server_of: Callable[[str], str | None] = lambda _: None,
        handler: str | None = None,
    ) -> None:
        self._client = client
        self._server_of = server_of
        self._pull_seconds = pull_seconds
        self._handler = handler

    async def pull(self, reference: str, auth: Auth | None, *, lease: str) -> ImageId:
        """Pull with exactly these credentials; the lease keeps what was fetched. Raises Missing or CallFailed."""
        request = cri_pb2.PullImageRequest(image=cri_pb2.ImageSpec(image=reference))
        if self._handler is not None:
            request.image.runtime_handler = self._handler
            request.sandbox_config.annotations[_HANDLER] = self._handler
        if auth is not None:
            request.auth.username = auth.username
            request.auth.password = auth.password
            request.auth.identity_token = auth.identity_token
            # Without it, each host of the registry's hosts.toml gets them that answers 401, also a cache.
            request.auth.server_address = self._server_of(reference) or ""
        answer = await self._client.call(
            f"{_CRI}/PullImage", request, cri_pb2.PullImageResponse, lease=lease, seconds=self._pull_seconds
        )
        return ImageId(answer.image_ref)

    async def status(self, image: str) -> Status | None:
        """Return what is known of an image by its name or id; None: containerd does not have it."""
        request = cri_pb2.ImageStatusRequest(image=cri_pb2.ImageSpec(image=image), verbose=True)
        answer = await self._client.call(f"{_CRI}/ImageStatus", request, cri_pb2.ImageStatusResponse)
        if not answer.image.id:
            return None
        info = json.loads(answer.info["info"])
        return Status(
            chain=str(info.get("chainID") or ""),
            document=info.get("imageSpec") or {},
            digests=tuple(answer.image.repo_digests[:_MOST_DIGESTS]),
        )

    async def target(self, image_id: ImageId) -> str | None:
        """Return the digest of the manifest or index that an image was pulled by."""
        image = await self._get(image_id)
        return None if image is None else image.target.digest

    async def created(self, image_id: ImageId) -> float:
        """Return when containerd first had the image, by the node's clock."""
        image = await self._get(image_id)
        return 0.0 if image is None else image.created_at.ToNanoseconds() / 1e9

    async def _get(self, image_id: ImageId) -> images_pb2.Image | None:
        request = images_pb2.GetImageRequest(name=image_id)
        try:
            answer = await self._client.call(f"{_IMAGES}/Get", request, images_pb2.GetImageResponse)
        except Missing:
            return None
        return answer.image

    async def pin(self, image_id: ImageId, *, pinned: bool) -> None:
        """Say whether the kubelet's garbage collection passes over an image; one that is not there changes nothing."""
        image = await self._get(image_id)
        if image is None:
            return
        image.labels[_PINNED] = "pinned" if pinned else ""
        # The image as it is, with its target: containerd 2.4 crashes if an update lacks that.
        request = images_pb2.UpdateImageRequest(
            image=image, update_mask=FieldMask(paths=[f"labels.{_PINNED}"])
        )
        try:
            await self._client.call(f"{_IMAGES}/Update", request, images_pb2.UpdateImageResponse)
        except Missing:
            return

    async def remove(self, image_id: ImageId) -> None:
        """Remove an image with all its names."""
        request = cri_pb2.RemoveImageRequest(image=cri_pb2.ImageSpec(image=image_id))
        await self._client.call(f"{_CRI}/RemoveImage", request, cri_pb2.RemoveImageResponse)
