"""Prepares images by the node's own containerd: pulls by CRI, mounts a view of the layers that a lease keeps.

All that it knows is in containerd and the images' directory: a lease for each image, named as its directory.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from pathlib import Path

from sandlot_node.engine import Count, Report
from sandlot_node.failures import ImageError, Kind
from sandlot_node.images import Auth, Image, ImageId, config_from, config_of
from sandlot_node.machine import own_platform
from sandlot_node.protos import cri_pb2

from . import pulls
from .client import CallFailed, Client, Missing
from .content import Content, platforms_of
from .layout import Layout
from .leases import Leases
from .mounts import MountError
from .registry import Registry, Status
from .snapshots import Snapshots
from .transfers import Transfers

_log = logging.getLogger(__name__)

_IMAGE = "sandlot.dev/image"  # label of an image's lease: the image's id
_OURS = "sandlot.dev/pulled"  # and: the node did not have the image before
_PULL = "sandlot.dev/pull"  # label of a pull's lease
_AWAY = frozenset({"DEADLINE_EXCEEDED", "CANCELLED"})  # codes of a containerd that hangs or ends


class ContainerdEngine:
    """The engine of nodes with containerd."""

    def __init__(
        self,
        client: Client,
        *,
        images: Path,
        snapshotter: str | None = None,
        handler: str | None = None,
        server_of: Callable[[str], str | None] = lambda _: None,
        pull_seconds: float = 3600.0,
        progress_seconds: float = 0.5,
    ) -> None:
        self._client = client
        self._registry = Registry(client, pull_seconds=pull_seconds, server_of=server_of, handler=handler)
        self._snapshots = Snapshots(client, snapshotter=snapshotter)
        self._content = Content(client)
        self._leases = Leases(client)
        self._layout = Layout(images)
        self._pull_seconds = pull_seconds
        self._transfers = Transfers(self._content, progress_seconds=progress_seconds)
        self._attached: dict[ImageId, Image] = {}
        self._ours: set[ImageId] = set()  # the node did not have them before
        self._unreleased: dict[str, ImageId] = {}  # unmounted, and containerd still keeps their layers

    @asynccontextmanager
    async def fetched(
        self, reference: str, auth: Auth | None, report: Report, count: Count
    ) -> AsyncGenerator[ImageId]:
        """Pull under a lease that ends with the block."""
        lease = f"sandlot-pull-{uuid.uuid4().hex}"
        lifetime = timedelta(seconds=self._pull_seconds + 600)
        await self._give_back()
        started = time.time()
        with _as_image_error():
            await self._leases.create(lease, {_PULL: "true"}, lifetime=lifetime)
        try:
            try:
                async with self._transfers.followed(lease, report, count):
                    image_id = await self._registry.pull(reference, auth, lease=lease)
            except (Missing, CallFailed) as error:
                details = error.details if isinstance(error, CallFailed) else str(error)
                raise await self._failure(reference, details, lease=lease, auth=auth) from error
            with _as_image_error():
                if await self._registry.created(image_id) >= started:
                    self._ours.add(image_id)
                await self._check_platform(reference, image_id)
            yield image_id
        finally:
            with suppress(ImageError, CallFailed):
                await self._leases.delete(lease)

    async def _check_platform(self, reference: str, image_id: ImageId) -> None:
        """Refuse an image of another platform, which containerd pulls if it has no index."""
        status = await self._registry.status(image_id)
        found: set[str] = set() if status is None else platforms_of([status.document])
        if not found or any(f"{one}/".startswith(f"{own_platform()}/") for one in found):
            return
        if image_id in self._ours:
            self._ours.discard(image_id)
            await self._registry.remove(image_id)
        raise pulls.wrong_platform(reference, wanted=own_platform(), found=found)

    async def _failure(self, reference: str, details: str, *, lease: str, auth: Auth | None) -> ImageError:
        if not pulls.is_platform_error(details):
            return pulls.failure(reference, details, with_auth=auth is not None)
        found = platforms_of(await self._content.leased_documents(lease))
        return pulls.wrong_platform(reference, wanted=own_platform(), found=found)

    async def attach(self, image_id: ImageId) -> Image:
        """Mount a view of the image's layers in the images' directory."""
        there = self._attached.get(image_id)
        if there is not None:
            return there
        with _as_image_error():
            status = await self._registry.status(image_id)
            if status is None:
                raise ImageError(
                    Kind.UNAVAILABLE, f"the image {image_id} was removed from the node meanwhile; try again"
                )
            return await self._mount(image_id, status)

    async def _mount(self, image_id: ImageId, status: Status) -> Image:
        config = config_of(status.document)
        name = self._layout.new_name(image_id)
        labels = {_IMAGE: image_id, _OURS: "true" if image_id in self._ours else "false"}
        await self._leases.create(name, labels)
        try:
            try:
                wanted = await self._snapshots.view(name, parent=status.chain, lease=name)
            except Missing as error:
                raise ImageError(
                    Kind.UNSUPPORTED,
                    f"the snapshotter {await self._snapshots.name()} has no layers of {image_id}: {error}. "
                    "Set SANDLOT_SNAPSHOTTER to the one that containerd's CRI unpacks into, or "
                    "SANDLOT_RUNTIME_HANDLER to a runtime handler of that snapshotter",
                ) from error
            document = {"id": image_id, "digests": list(status.digests), **config.document()}
            rootfs = await asyncio.to_thread(self._layout.put, name, wanted, document)
            parts = await self._parts(image_id, status.chain)
            await self._registry.pin(image_id, pinned=True)
        except BaseException:
            await self._undo(name)
            raise
        image = Image(id=image_id, rootfs=rootfs, config=config, digests=status.digests, parts=parts)
        self._attached[image_id] = image
        return image

    async def _parts(self, image_id: ImageId, chain: str) -> dict[str, int]:
        parts = await self._snapshots.bytes_by_layer(chain)
        target = await self._registry.target(image_id)
        if target is not None:
            for layer in await self._content.kept_layers(target, config=image_id):
                parts[f"blob:{layer.digest}"] = layer.size
        return parts

    async def _undo(self, name: str) -> None:
        """Take an image's directory, view and lease away."""
        await asyncio.to_thread(self._layout.take, name)
        await self._snapshots.remove(name)
        await self._leases.delete(name)

    async def restore(self) -> list[Image]:
        """Adopt what an earlier agent mounted. After the node's restart nothing is mounted: mount it again.

        It may be called again after it failed.
        """
        self._attached.clear()
        with _as_image_error():
            await asyncio.to_thread(self._layout.prepare)
            for lease in await self._leases.with_label(_PULL):
                await self._leases.delete(lease)
            leases = await self._leases.with_label(_IMAGE)
            for name in self._layout.names() - set(leases):
                await asyncio.to_thread(self._layout.take, name)
            mounted = self._layout.mounted()
            # What is mounted comes first: slots may use it.
            for name in sorted(leases, key=lambda name: (name not in mounted, name)):
                labels = leases[name]
                image_id = ImageId(labels[_IMAGE])
                if labels.get(_OURS) == "true":
                    self._ours.add(image_id)
                try:
                    with _as_image_error():
                        if not (name in mounted and await self._adopt(name, image_id)):
                            await self._again(name, image_id, in_place=name in mounted)
                except (ImageError, KeyError, TypeError) as error:
                    if _is_away(error) and name in mounted:
                        raise  # slots may use it, and it would lose the record of that
                    await self._leases.with_label(_IMAGE)  # raises if containerd is away
                    # One image must not keep the agent, and with it all others, from starting: a lazy snapshotter
                    # may wait for one image's registry. Its lease stays, and the next agent tries again.
                    _log.warning("image %s is not prepared any more: %s", image_id, error)
        return list(self._attached.values())

    async def _adopt(self, name: str, image_id: ImageId) -> bool:
        """Record an image that is mounted, also when containerd has forgotten its names; False: it is not whole."""
        document = self._layout.document(name)
        chain = await self._snapshots.parent(name)
        if document is None or chain is None:
            return False
        self._attached[image_id] = Image(
            id=image_id,
            rootfs=self._layout.rootfs(name),
            config=config_from(document),
            digests=tuple(document["digests"]),
            parts=await self._parts(image_id, chain),
        )
        return True

    async def _again(self, name: str, image_id: ImageId, *, in_place: bool) -> None:
        """Mount an image under a new name, if it can be; the old lease keeps its layers until the new one does.

        `in_place`: its old name is mounted, perhaps in slots that use it, so it stays unless the new one took its place.
        """
        status = await self._registry.status(image_id)
        if status is not None and image_id not in self._attached:
            try:
                await self._mount(image_id, status)
            except ImageError as error:
                if _is_away(error):
                    raise
                _log.warning("could not mount %s again, so it is no longer prepared: %s", image_id, error)
        if not in_place or image_id in self._attached:
            await self._undo(name)

    async def release(self, image_id: ImageId) -> None:
        """Unmount, and give the layers and what the agent pulled back to containerd's garbage collection."""
        image = self._attached.get(image_id)
        if image is None:
            return
        name = image.rootfs.parent.name
        with _as_image_error():
            await asyncio.to_thread(self._layout.take, name)
        del self._attached[image_id]
        self._unreleased[name] = image_id
        await self._give_back()

    async def _give_back(self) -> None:
        """Let containerd collect what released images had; what fails is tried again at the next call."""
        for name, image_id in list(self._unreleased.items()):
            try:
                await self._snapshots.remove(name)
                if image_id not in self._attached:
                    await self._registry.pin(image_id, pinned=False)
                    if image_id in self._ours:
                        await self._registry.remove(image_id)
                        self._ours.discard(image_id)
                await self._leases.delete(name)
            except (ImageError, CallFailed) as error:
                _log.warning("could not give the layers of %s back to containerd yet: %s", image_id, error)
            else:
                self._unreleased.pop(name, None)

    async def free(self) -> int:
        """Return the bytes that the snapshotter's file system has left for others than root."""
        with _as_image_error():
            found = os.statvfs(await self._snapshots.mountpoint())
        return found.f_bavail * found.f_frsize

    async def living(self) -> set[str] | None:
        """Return the names of the pods whose sandbox containerd runs."""
        request = cri_pb2.ListPodSandboxRequest()
        request.filter.state.state = cri_pb2.SANDBOX_READY
        with _as_image_error():
            answer = await self._client.call(
                "/runtime.v1.RuntimeService/ListPodSandbox", request, cri_pb2.ListPodSandboxResponse
            )
        return {pod.metadata.name for pod in answer.items}


def _is_away(error: Exception) -> bool:
    """Return whether containerd did not answer, which says nothing about an image."""
    return isinstance(error, ImageError) and error.kind is Kind.UNAVAILABLE


@contextmanager
def _as_image_error() -> Generator[None]:
    """Turn containerd's and the kernel's errors into an ImageError."""
    try:
        yield
    except (CallFailed, Missing, MountError) as error:
        away = isinstance(error, CallFailed) and error.code in _AWAY
        kind = Kind.UNAVAILABLE if away else Kind.FAILED
        raise ImageError(kind, f"containerd could not serve the image: {error}") from error
    except OSError as error:
        kind = Kind.NO_SPACE if error.errno in (errno.ENOSPC, errno.EDQUOT) else Kind.FAILED
        raise ImageError(kind, f"the node's file system failed: {error}") from error
