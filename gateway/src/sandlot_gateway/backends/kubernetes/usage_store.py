"""Keeps the documents of sums in ConfigMaps: one for each day and source, changed only as it was read."""

from __future__ import annotations

import asyncio
import base64
import random
import time
import zlib
from collections.abc import Callable

import msgspec
from sandlot_contract.names import APP, LABEL_COMPONENT, LABEL_NAME, LABEL_USAGE_DAY, USAGE_COMPONENT
from sandlot_kube import paths
from sandlot_kube.client import KubeClient
from sandlot_kube.errors import KubeError

from ...core.backend import BackendError, UsageChanged
from ...core.usage import Document, day_of
from ...core.usage_source import Source
from .translate import refusal
from .writes import read, unless_missing

_PAGE = 8  # documents of a list that are in memory at once
_TRIES = 5  # attempts; each fails if another gateway changes the document at that moment
_PAUSE = 0.02  # seconds between two at most, twice as many after each; gateways that leave together must not keep pace
_NAME = "sandlot-usage-"
_KEY = "sums"
_AHEAD = 2  # days by which another gateway's clock may be ahead


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    resource_version: str = ""


class _ConfigMap(msgspec.Struct, rename="camel"):
    metadata: _Metadata
    binary_data: dict[str, str] = {}

    @property
    def document(self) -> Document:
        """Raises BackendError."""
        try:
            return unpack(base64.b64decode(self.binary_data[_KEY], validate=True))
        except (KeyError, ValueError, zlib.error) as error:
            name = self.metadata.name
            raise BackendError(f"cannot read the usage in ConfigMap {name}: {error!r}; delete it") from error


class _ListMetadata(msgspec.Struct):
    go_on: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    items: list[_ConfigMap] = []
    metadata: _ListMetadata = msgspec.field(default_factory=_ListMetadata)


class ConfigMapStore:
    def __init__(self, client: KubeClient, *, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def load(self, *, since: int, each: Callable[[Source, Document], None]) -> None:
        params = {**_selector("in", since), "limit": str(_PAGE)}
        try:
            while True:
                body = await self._client.request("GET", paths.config_maps(self._namespace), params=params)
                go_on = await asyncio.to_thread(_read_page, body, each)
                if not go_on:
                    return
                params["continue"] = go_on
        except KubeError as error:
            raise _failure(error) from error

    async def change(self, source: Source, change: Callable[[Document], Document | None]) -> None:
        try:
            for attempt in range(_TRIES):
                there = await self._get(source)
                packed = await asyncio.to_thread(_changed, there, change)
                if packed is None:
                    return
                try:
                    await self._write(source, packed, there)
                    return
                except KubeError as error:
                    if error.status != 409:
                        raise
                    if attempt == _TRIES - 1:
                        raise UsageChanged(f"other gateways changed it {_TRIES} times: {error}") from error
                await asyncio.sleep(random.uniform(0.0, _PAUSE * 2**attempt))
        except KubeError as error:
            raise _failure(error) from error

    async def drop_before(self, day: int) -> None:
        try:
            body = await self._client.request(
                "GET", paths.config_maps(self._namespace), params=_selector("notin", day)
            )
            for one in read(body, _List).items:
                await unless_missing(
                    self._client, "DELETE", paths.config_maps(self._namespace, one.metadata.name)
                )
        except KubeError as error:
            raise _failure(error) from error

    async def _get(self, source: Source) -> _ConfigMap | None:
        try:
            body = await self._client.request("GET", paths.config_maps(self._namespace, _name(source)))
        except KubeError as error:
            if error.status == 404:
                return None
            raise
        return read(body, _ConfigMap)

    async def _write(self, source: Source, packed: str, there: _ConfigMap | None) -> None:
        labels = {LABEL_NAME: APP, LABEL_COMPONENT: USAGE_COMPONENT, LABEL_USAGE_DAY: str(source.day)}
        metadata: dict[str, object] = {"name": _name(source), "labels": labels}
        if there is not None:
            metadata["resourceVersion"] = there.metadata.resource_version
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "binaryData": {_KEY: packed},
        }
        if there is None:
            await self._client.request("POST", paths.config_maps(self._namespace), body=body)
        else:
            await self._client.request("PUT", paths.config_maps(self._namespace, _name(source)), body=body)


def pack(document: Document) -> bytes:
    return zlib.compress(msgspec.json.encode(document))


def unpack(packed: bytes) -> Document:
    """Return what was packed. Raises zlib.error or ValueError."""
    return msgspec.json.decode(zlib.decompress(packed), type=Document)


def _read_page(body: bytes, each: Callable[[Source, Document], None]) -> str:
    """Return what goes on the list, "" at its end. Raises BackendError."""
    page = read(body, _List)
    for one in page.items:
        each(_source(one.metadata.name), one.document)
    return page.metadata.go_on


def _changed(there: _ConfigMap | None, change: Callable[[Document], Document | None]) -> str | None:
    """Return the value that replaces a document's, or None. Raises BackendError."""
    changed = change(there.document if there is not None else Document())
    return None if changed is None else base64.b64encode(pack(changed)).decode()


def _name(source: Source) -> str:
    return f"{_NAME}{source.day}-{source.name}"


def _source(name: str) -> Source:
    day, _, source = name.removeprefix(_NAME).partition("-")
    return Source(int(day), source)


def _selector(which: str, since: int) -> dict[str, str]:
    days = ",".join(str(day) for day in range(since, day_of(time.time()) + _AHEAD + 1))
    return {"labelSelector": f"{LABEL_COMPONENT}={USAGE_COMPONENT},{LABEL_USAGE_DAY} {which} ({days})"}


def _failure(error: KubeError) -> BackendError:
    return refusal(error, retry_after=1.0)
