"""Sends the requests about one pending create's Sandbox resource: create, renew, end, delete."""

from __future__ import annotations

from sandlot_kube import clock, ends, paths
from sandlot_kube.answers import read
from sandlot_kube.client import KubeClient
from sandlot_kube.ends import Ended
from sandlot_kube.objects import Sandbox, SandboxState

from ...core.owners import PendingCreate
from .translate import sandbox_body, to_kube
from .writes import uid_in, unless_ended, unless_missing


class PendingCreateRequests:
    """A pending create is valid for `lasts` seconds after `create` or `renew`. All methods raise KubeError."""

    def __init__(self, client: KubeClient, *, namespace: str, lasts: float) -> None:
        self._client = client
        self._namespace = namespace
        self._lasts = lasts

    async def create(self, name: str, pending_create: PendingCreate) -> str:
        """Create the resource and return its uid."""
        body = sandbox_body(
            name,
            {
                "template": to_kube(pending_create.template),
                "sandboxId": pending_create.sandbox_id,
                "tenant": pending_create.tenant,
                "labels": list(pending_create.labels),
                "state": SandboxState.PENDING,
                "waitingUntil": self._until(),
            },
            request=pending_create.request,
        )
        return uid_in(await self._client.request("POST", paths.sandboxes(self._namespace), body=body))

    async def find(self, name: str) -> Sandbox:
        return read(await self._client.request("GET", self._path(name)), Sandbox)

    async def renew(self, name: str) -> None:
        """Renew it, unless it is gone."""
        body = {"spec": {"waitingUntil": self._until()}}
        await unless_missing(self._client, "PATCH", self._path(name), body=body)

    async def end(self, name: str, ended: Ended) -> None:
        """Write its end, unless it has one or is gone."""
        await unless_ended(self._client, self._path(name), ends.status(ended))

    async def delete(self, name: str) -> None:
        await unless_missing(self._client, "DELETE", self._path(name))

    def _path(self, name: str) -> str:
        return paths.sandboxes(self._namespace, name)

    def _until(self) -> str:
        return clock.text(self._client.now() + self._lasts)
