"""Reads manifests from containerd's content store: an image's layers, the platforms it has, the progress of a pull."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from sandlot_node.images import Progress
from sandlot_node.protos import content_pb2, leases_pb2

from .client import Client, Missing

_CONTENT = "/containerd.services.content.v1.Content"
_LEASES = "/containerd.services.leases.v1.Leases"
_MOST_DOCUMENTS = 200  # of an index that are read
_REFERENCE = "containerd.io/gc.ref.content"  # of labels that keep a blob
_LARGEST = 8 << 20  # of a manifest or configuration

Document = Mapping[str, Any]


@dataclass(frozen=True)
class Blob:
    """A layer as it is in the registry."""

    digest: str
    size: int


@dataclass(frozen=True)
class Stored:
    """A blob as the store has it. `created`: since when, in nanoseconds by the node's clock."""

    size: int
    created: int


def layers_of(manifest: Document) -> list[Blob]:
    """Return the layers in a manifest; none for an index."""
    found = cast("Sequence[Document]", manifest.get("layers") or [])
    return [Blob(str(layer["digest"]), int(layer["size"])) for layer in found]


def platforms_of(documents: Iterable[Document]) -> set[str]:
    """Return the platforms that indexes and configurations among these documents name."""
    found: set[str] = set()
    for document in documents:
        manifests = cast("Sequence[Document]", document.get("manifests") or [])
        named = [cast("Document", entry.get("platform") or {}) for entry in manifests]
        for entry in [*named, document]:
            parts = [entry.get("os"), entry.get("architecture"), entry.get("variant")]
            text = "/".join(str(part) for part in parts if part)
            # Attestations in an index have the platform unknown/unknown.
            if parts[0] and parts[1] and "unknown" not in text:
                found.add(text)
    return found


class Content:
    """The content store of containerd."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def stored(self, digest: str) -> Stored | None:
        """Return what the store says of a blob; None: it does not have it."""
        info = await self._info(digest)
        return None if info is None else Stored(info.size, info.created_at.ToNanoseconds())

    async def _info(self, digest: str) -> content_pb2.Info | None:
        request = content_pb2.InfoRequest(digest=digest)
        try:
            answer = await self._client.call(f"{_CONTENT}/Info", request, content_pb2.InfoResponse)
        except Missing:
            return None
        return answer.info

    async def document(self, digest: str) -> Document | None:
        """Return a blob that is a JSON object; None for any other."""
        stored = await self.stored(digest)
        if stored is None or stored.size > _LARGEST:
            return None
        request = content_pb2.ReadContentRequest(digest=digest)
        data = bytearray()
        try:
            async for part in self._client.stream(
                f"{_CONTENT}/Read", request, content_pb2.ReadContentResponse
            ):
                data += part.data
            document = json.loads(data)
        except (Missing, ValueError, RecursionError):  # an image is anybody's
            return None
        return cast("Document", document) if isinstance(document, dict) else None

    async def leased(self, lease: str) -> list[str]:
        """Return the digests of the blobs that a lease holds."""
        request = leases_pb2.ListResourcesRequest(id=lease)
        try:
            answer = await self._client.call(
                f"{_LEASES}/ListResources", request, leases_pb2.ListResourcesResponse
            )
        except Missing:
            return []
        return [resource.id for resource in answer.resources if resource.type == "content"]

    async def leased_documents(self, lease: str) -> list[Document]:
        """Return the JSON documents that a lease holds."""
        found = [await self.document(digest) for digest in await self.leased(lease)]
        return [document for document in found if document is not None]

    async def kept_layers(self, digest: str, *, config: str) -> list[Blob]:
        """Return the layers that stay in the store as long as their image does.

        `digest` is that of the image's manifest or of an index with it. containerd can be configured to discard layers
        once they are unpacked; then their manifest has no labels that refer to them.
        """
        # An index of indexes that name each other a thousand times would be read a billion times.
        seen, wanted = {digest}, [digest]
        while wanted and len(seen) <= _MOST_DOCUMENTS:
            digest = wanted.pop()
            document = await self.document(digest)
            if document is None:
                continue
            if cast("Document", document.get("config") or {}).get("digest") == config:
                info = await self._info(digest)
                labels = {} if info is None else dict(info.labels)
                kept = {value for name, value in labels.items() if name.startswith(_REFERENCE)}
                return [layer for layer in layers_of(document) if layer.digest in kept]
            for entry in cast("Sequence[Document]", document.get("manifests") or []):
                inner = str(entry["digest"])
                if inner not in seen:
                    seen.add(inner)
                    wanted.append(inner)
        return []

    async def progress(self, layers: Sequence[Blob]) -> Progress:
        """Return how much of these layers is in the store."""
        request = content_pb2.ListStatusesRequest()
        answer = await self._client.call(
            f"{_CONTENT}/ListStatuses", request, content_pb2.ListStatusesResponse
        )
        coming = {
            layer.digest: status.offset
            for status in answer.statuses
            for layer in layers
            if layer.digest in status.ref or status.expected == layer.digest
        }
        done = 0
        for layer in layers:
            there = coming.get(layer.digest)
            if there is None:
                there = layer.size if await self.stored(layer.digest) is not None else 0
            done += min(there, layer.size)
        total = sum(layer.size for layer in layers)
        return Progress("unpacking" if done == total else "pulling", done, total)
