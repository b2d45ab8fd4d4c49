"""Keeps the lease of each run in a ConfigMap, changed only as it was read: one fact for all gateways."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from typing import Any

import msgspec
from sandlot_contract.names import APP, LABEL_COMPONENT, LABEL_NAME, RUN_COMPONENT
from sandlot_kube import paths
from sandlot_kube.answers import read
from sandlot_kube.changes import Contended, Instead
from sandlot_kube.changes import change as change_object
from sandlot_kube.client import KubeClient
from sandlot_kube.errors import KubeError

from ...core.backend import BackendError, Unavailable
from ...core.runs import Change, Lease, RunId
from .translate import refusal

_log = logging.getLogger(__name__)

_PAGE = 250  # leases of a list that one answer has
_TIMEOUT = 5.0  # seconds for a request
_KEY = "lease"


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    resource_version: str = ""


class _ConfigMap(msgspec.Struct, rename="camel"):
    metadata: _Metadata
    data: dict[str, str] = {}

    @property
    def lease(self) -> Lease:
        """Raises Unavailable for one that no gateway wrote, or a newer one: it is there, so its sandboxes live on."""
        try:
            return msgspec.json.decode(self.data.get(_KEY, ""), type=Lease)
        except msgspec.MsgspecError as error:
            raise Unavailable(
                f"cannot read the run in ConfigMap {self.metadata.name}: {error}; if no newer gateway wrote it, "
                "delete it"
            ) from error


class KubernetesRuns:
    """Implements `RunStore` for one namespace."""

    def __init__(self, client: KubeClient, *, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._unreadable: dict[str, str] = {}  # names and versions of those that are logged

    def now(self) -> float:
        return self._client.now()

    async def all(self, *, answered: Callable[[], object] = lambda: None) -> list[Lease]:
        params = {"labelSelector": f"{LABEL_COMPONENT}={RUN_COMPONENT}"}
        found: list[Lease] = []
        unreadable: dict[str, str] = {}
        try:
            async for page in self._client.pages(
                paths.config_maps(self._namespace), limit=_PAGE, params=params, timeout=_TIMEOUT
            ):
                answered()
                for one in (read(item, _ConfigMap) for item in page.items or []):
                    try:
                        found.append(one.lease)
                    except Unavailable as error:
                        name, version = one.metadata.name, one.metadata.resource_version
                        unreadable[name] = version
                        if self._unreadable.get(name) != version:
                            _log.warning("%s", error)
        except KubeError as error:
            raise _failure(error) from error
        self._unreadable = unreadable
        return found

    async def find(self, tenant: str, run_id: RunId) -> Lease | None:
        path = paths.config_maps(self._namespace, _name(tenant, run_id))
        try:
            return read(await self._client.request("GET", path, timeout=_TIMEOUT), _ConfigMap).lease
        except KubeError as error:
            if error.status == 404:
                return None
            raise _failure(error) from error

    async def change(self, tenant: str, run_id: RunId, change: Change) -> Lease | None:
        name = _name(tenant, run_id)
        lease: Lease | None = None

        async def decide(there: bytes | None) -> dict[str, Any] | Instead:
            nonlocal lease
            old = None if there is None else read(there, _ConfigMap).lease
            lease = change(old)
            if lease == old:
                return Instead.UNCHANGED
            return Instead.DELETED if lease is None else _manifest(name, lease)

        try:
            await change_object(
                self._client, paths.config_maps(self._namespace), name, decide, timeout=_TIMEOUT
            )
        except KubeError as error:
            raise _failure(error) from error
        except Contended as error:
            raise Unavailable(f"run {run_id}: {error}; try again after Retry-After") from error
        return lease


def _manifest(name: str, lease: Lease) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {LABEL_NAME: APP, LABEL_COMPONENT: RUN_COMPONENT}},
        "data": {_KEY: msgspec.json.encode(lease).decode()},
    }


def _name(tenant: str, run_id: RunId) -> str:
    # Tenants and runs may have capital letters and underscores, which names of resources have not.
    return f"sandlot-run-{hashlib.sha256(f'{tenant}/{run_id}'.encode()).hexdigest()[:32]}"


def _failure(error: KubeError) -> BackendError:
    return refusal(error, retry_after=1.0)
