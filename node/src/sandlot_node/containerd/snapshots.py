"""Views of an image's layers in containerd's snapshotter, and the layers' bytes."""

from __future__ import annotations

from google.protobuf.empty_pb2 import Empty

from sandlot_node.failures import ImageError, Kind
from sandlot_node.protos import cri_pb2, snapshots_pb2

from .client import Client, Missing
from .mounts import Mount

_SNAPSHOTS = "/containerd.services.snapshots.v1.Snapshots"


class Snapshots:
    """One snapshotter of containerd: the one that its CRI unpacks images into, unless another is named."""

    def __init__(self, client: Client, *, snapshotter: str | None) -> None:
        self._client = client
        self._snapshotter = snapshotter

    async def name(self) -> str:
        """Return the snapshotter's name; unless it was given, that of the CRI's image file system."""
        if self._snapshotter is None:
            place = (await self.mountpoint()).rpartition("/")[2]
            name = place.partition(".snapshotter.v1.")[2]
            if not name:
                raise ImageError(
                    Kind.UNSUPPORTED,
                    f"could not tell containerd's snapshotter from its directory {place!r}; "
                    "set SANDLOT_SNAPSHOTTER to its name",
                )
            self._snapshotter = name
        return self._snapshotter

    async def mountpoint(self) -> str:
        """Return the directory of the CRI's snapshotter."""
        answer = await self._client.call(
            "/runtime.v1.ImageService/ImageFsInfo", cri_pb2.ImageFsInfoRequest(), cri_pb2.ImageFsInfoResponse
        )
        if not answer.image_filesystems:
            raise ImageError(
                Kind.UNAVAILABLE, "containerd does not name its image file system yet; try again"
            )
        return answer.image_filesystems[0].fs_id.mountpoint

    async def view(self, key: str, *, parent: str, lease: str) -> list[Mount]:
        """Create a read-only snapshot that the lease keeps, and return how to mount it. Raises Missing."""
        name = await self.name()
        request = snapshots_pb2.ViewSnapshotRequest(snapshotter=name, key=key, parent=parent)
        answer = await self._client.call(
            f"{_SNAPSHOTS}/View", request, snapshots_pb2.ViewSnapshotResponse, lease=lease
        )
        return [Mount(one.type, one.source, tuple(one.options)) for one in answer.mounts]

    async def remove(self, key: str) -> None:
        """Remove a snapshot; one that is not there changes nothing."""
        request = snapshots_pb2.RemoveSnapshotRequest(snapshotter=await self.name(), key=key)
        try:
            await self._client.call(f"{_SNAPSHOTS}/Remove", request, Empty)
        except Missing:
            return

    async def bytes_by_layer(self, chain: str) -> dict[str, int]:
        """Return the bytes on disk of a layer and those below it."""
        name = await self.name()
        found: dict[str, int] = {}
        key: str | None = chain
        while key:
            request = snapshots_pb2.UsageRequest(snapshotter=name, key=key)
            usage = await self._client.call(f"{_SNAPSHOTS}/Usage", request, snapshots_pb2.UsageResponse)
            found[f"snapshot:{key}"] = usage.size
            key = await self.parent(key)
        return found

    async def parent(self, key: str) -> str | None:
        """Return the layer below a snapshot, empty if there is none; None: there is no such snapshot."""
        request = snapshots_pb2.StatSnapshotRequest(snapshotter=await self.name(), key=key)
        try:
            answer = await self._client.call(
                f"{_SNAPSHOTS}/Stat", request, snapshots_pb2.StatSnapshotResponse
            )
        except Missing:
            return None
        return answer.info.parent
