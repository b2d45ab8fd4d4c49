"""Tells whether a standby could lead: tries to list each resource that a leader lists."""

from __future__ import annotations

import asyncio
import logging

from sandlot_kube import paths
from sandlot_kube.client import KubeClient
from sandlot_kube.errors import KubeError
from sandlot_kube.refusals import explained

_log = logging.getLogger(__name__)
_PAUSE = 60.0  # seconds between two trials
_PAUSE_FAILING = 10.0  # instead, while one fails


class Tried:
    """One resource."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.failure: str | None = None  # of the last try


class Trial:
    def __init__(self, client: KubeClient, *, namespace: str) -> None:
        self.resources = [
            Tried(path)
            for path in (
                paths.pods(namespace),
                paths.nodes(),
                paths.sandboxes(namespace),
                paths.pools(namespace),
                paths.warmups(namespace),
            )
        ]
        self._client = client

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            for resource in self.resources:
                await self._try(resource)
            failing = any(resource.failure is not None for resource in self.resources)
            await asyncio.sleep(_PAUSE_FAILING if failing else _PAUSE)

    async def _try(self, resource: Tried) -> None:
        try:
            await self._client.request("GET", resource.path, params={"limit": "1"})
        except KubeError as error:
            why = explained(error, resource.path)
            if resource.failure is None:
                _log.warning("this standby could not lead: cannot read %s: %s", resource.path, why)
            resource.failure = why
            return
        if resource.failure is not None:
            _log.info("this standby can read %s again", resource.path)
            resource.failure = None
