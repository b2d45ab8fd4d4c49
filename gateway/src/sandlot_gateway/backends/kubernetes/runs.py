"""Keeps the lease of each run in a ConfigMap, changed only as it was read: one fact for all gateways."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
from collections.abc import Callable

import msgspec
from sandlot_contract.names import APP, LABEL_COMPONENT, LABEL_NAME, RUN_COMPONENT
from sandlot_kube import paths
from sandlot_kube.client import KubeClient
from sandlot_kube.errors import KubeError

from ...core.backend import BackendError, Unavailable
from ...core.runs import Change, Lease, RunId
from .translate import refusal
from .writes import read

_log = logging.getLogger(__name__)

_PAGE = 250  # leases of a list that one answer has
_TRIES = 5  # attempts; each fails if another gateway changes the lease at that moment
_PAUSE = 0.02  # seconds between two at most, twice as many after each
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


class _ListMetadata(msgspec.Struct):
    go_on: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    items: list[_ConfigMap] = []
    metadata: _ListMetadata = msgspec.field(default_factory=_ListMetadata)


class KubernetesRuns:
    """Implements `RunStore` for one namespace."""

    def __init__(self, client: KubeClient, *, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._unreadable: dict[str, str] = {}  # names and versions of those that are logged

    def now(self) -> float:
        return self._client.now()

    async def all(self, *, answered: Callable[[], object] = lambda: None) -> list[Lease]:
        params = {"labelSelector": f"{LABEL_COMPONENT}={RUN_COMPONENT}", "limit": str(_PAGE)}
        found: list[Lease] = []
        unreadable: dict[str, str] = {}
        try:
            while True:
                body = await self._client.request(
                    "GET", paths.config_maps(self._namespace), params=params, timeout=_TIMEOUT
                )
                answered()
                page = read(body, _List)
                for one in page.items:
                    try:
                        found.append(one.lease)
                    except Unavailable as error:
                        name, version = one.metadata.name, one.metadata.resource_version
                        unreadable[name] = version
                        if self._unreadable.get(name) != version:
                            _log.warning("%s", error)
                if not page.metadata.go_on:
                    self._unreadable = unreadable
                    return found
                params["continue"] = page.metadata.go_on
        except KubeError as error:
            raise _failure(error) from error

    async def find(self, tenant: str, run_id: RunId) -> Lease | None:
        try:
            there = await self._get(_name(tenant, run_id))
        except KubeError as error:
            raise _failure(error) from error
        return None if there is None else there.lease

    async def change(self, tenant: str, run_id: RunId, change: Change) -> Lease | None:
        name = _name(tenant, run_id)
        try:
            for attempt in range(_TRIES):
                there = await self._get(name)
                old = None if there is None else there.lease
                lease = change(old)
                if lease == old:
                    return lease
                try:
                    await self._write(name, lease, there)
                    return lease
                except KubeError as error:
                    # 404: another gateway has forgotten it meanwhile.
                    if error.status not in (404, 409):
                        raise
                await asyncio.sleep(random.uniform(0.0, _PAUSE * 2**attempt))
        except KubeError as error:
            raise _failure(error) from error
        raise Unavailable(
            f"run {run_id}: other gateways changed it {_TRIES} times meanwhile; try again after Retry-After"
        )

    async def _get(self, name: str) -> _ConfigMap | None:
        try:
            path = paths.config_maps(self._namespace, name)
            return read(await self._client.request("GET", path, timeout=_TIMEOUT), _ConfigMap)
        except KubeError as error:
            if error.status == 404:
                return None
            raise

    async def _write(self, name: str, lease: Lease | None, there: _ConfigMap | None) -> None:
        version = there.metadata.resource_version if there is not None else ""
        path = paths.config_maps(self._namespace, name)
        if lease is None:
            # Only what was read: another gateway may have begun the run again.
            body: dict[str, object] = {"preconditions": {"resourceVersion": version}}
            await self._client.request("DELETE", path, body=body, timeout=_TIMEOUT)
            return
        metadata: dict[str, object] = {
            "name": name,
            "labels": {LABEL_NAME: APP, LABEL_COMPONENT: RUN_COMPONENT},
        }
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": {_KEY: msgspec.json.encode(lease).decode()},
        }
        if there is None:
            collection = paths.config_maps(self._namespace)
            await self._client.request("POST", collection, body=body, timeout=_TIMEOUT)
        else:
            metadata["resourceVersion"] = version
            await self._client.request("PUT", path, body=body, timeout=_TIMEOUT)


def _name(tenant: str, run_id: RunId) -> str:
    # Tenants and runs may have capital letters and underscores, which names of resources have not.
    return f"sandlot-run-{hashlib.sha256(f'{tenant}/{run_id}'.encode()).hexdigest()[:32]}"


def _failure(error: KubeError) -> BackendError:
    return refusal(error, retry_after=1.0)
