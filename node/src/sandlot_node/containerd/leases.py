"""Creates and deletes containerd's leases, which keep content and snapshots from its garbage collection."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from google.protobuf.empty_pb2 import Empty

from sandlot_node.protos import leases_pb2

from .client import CallFailed, Client, Missing

_LEASES = "/containerd.services.leases.v1.Leases"
_EXPIRES = "containerd.io/gc.expire"


class Leases:
    """The leases of containerd."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def create(
        self, lease: str, labels: Mapping[str, str], *, lifetime: timedelta | None = None
    ) -> None:
        """Create a lease; after its lifetime containerd deletes it."""
        wanted = dict(labels)
        if lifetime is not None:
            wanted[_EXPIRES] = (datetime.now(UTC) + lifetime).strftime("%Y-%m-%dT%H:%M:%SZ")
        request = leases_pb2.CreateRequest(id=lease, labels=wanted)
        await self._client.call(f"{_LEASES}/Create", request, leases_pb2.CreateResponse)

    async def delete(self, lease: str) -> None:
        """Delete a lease, and with it what nothing else holds."""
        request = leases_pb2.DeleteRequest(id=lease, sync=True)
        try:
            await self._client.call(f"{_LEASES}/Delete", request, Empty)
        except Missing:
            return
        except CallFailed as error:
            # A collection of much takes longer than a call may; it goes on by itself.
            if error.code != "DEADLINE_EXCEEDED":
                raise

    async def with_label(self, label: str) -> dict[str, dict[str, str]]:
        """Return the labels of all leases that have this one, by the lease's id."""
        request = leases_pb2.ListRequest()
        answer = await self._client.call(f"{_LEASES}/List", request, leases_pb2.ListResponse)
        return {lease.id: dict(lease.labels) for lease in answer.leases if label in lease.labels}
