"""Tells whether a standby could lead: tries to list and watch each resource that a leader reads, and to write the Lease."""

from __future__ import annotations

import asyncio
import logging

import msgspec
from sandlot_kube import paths
from sandlot_kube.client import KubeClient
from sandlot_kube.errors import KubeError
from sandlot_kube.objects import Metadata
from sandlot_kube.refusals import explained

_log = logging.getLogger(__name__)
_PAUSE = 60.0  # seconds between two trials
_PAUSE_FAILING = 10.0  # instead, while one fails


class _List(msgspec.Struct):
    metadata: Metadata


class Tried:
    """One collection."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.failure: str | None = None  # of the last try


class Trial:
    def __init__(self, client: KubeClient, *, namespace: str, lease: str) -> None:
        """`lease`: the path of the Lease."""
        self._read = [
            Tried(path)
            for path in (
                paths.pods(namespace),
                paths.nodes(),
                paths.sandboxes(namespace),
                paths.pools(namespace),
                paths.warmups(namespace),
            )
        ]
        self._lease = lease
        self._leases = Tried(lease.rpartition("/")[0])
        self.resources = [*self._read, self._leases]
        self._client = client

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            for resource in self._read:
                self._note(resource, await self._why_unreadable(resource.path))
            self._note(self._leases, await self._why_not_held())
            failing = any(resource.failure is not None for resource in self.resources)
            await asyncio.sleep(_PAUSE_FAILING if failing else _PAUSE)

    async def _why_unreadable(self, path: str) -> str | None:
        try:
            body = await self._client.request("GET", path, params={"limit": "1"})
            # The right to list is not the right to watch.
            version = msgspec.json.decode(body, type=_List).metadata.resource_version
            await self._client.stream_begins(path, params={"watch": "1", "resourceVersion": version})
        except KubeError as error:
            return explained(error, path)
        return None

    async def _why_not_held(self) -> str | None:
        """Return why this standby could not hold the Lease, by a write that changes nothing."""
        try:
            body = await self._client.request("GET", self._lease)
            await self._client.request("PUT", self._lease, params={"dryRun": "All"}, body=body)
        except KubeError as error:
            # Nobody has created it yet, or its holder has renewed it between the two requests.
            return None if error.status in (404, 409) else explained(error, self._lease)
        return None

    def _note(self, resource: Tried, why: str | None) -> None:
        if why is not None and resource.failure is None:
            _log.warning("this standby could not lead: cannot use %s: %s", resource.path, why)
        elif why is None and resource.failure is not None:
            _log.info("this standby can use %s again", resource.path)
        resource.failure = why
