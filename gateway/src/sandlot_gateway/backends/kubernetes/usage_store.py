"""Keeps the documents of sums in ConfigMaps: one for each day and source, changed only as it was read."""

from __future__ import annotations

import asyncio
import base64
import time
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from sandlot_contract.names import APP, LABEL_COMPONENT, LABEL_NAME, LABEL_USAGE_DAY, USAGE_COMPONENT
from sandlot_kube import paths
from sandlot_kube.answers import read
from sandlot_kube.changes import Contended, Instead
from sandlot_kube.changes import change as change_object
from sandlot_kube.client import KubeClient
from sandlot_kube.errors import KubeError

from ...core.backend import BackendError, UsageChanged
from ...core.usage import Document, day_of
from ...core.usage_source import Source
from .translate import refusal
from .writes import unless_missing

_PAGE = 8  # documents of a list that are in memory at once
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


class ConfigMapStore:
    def __init__(self, client: KubeClient, *, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def load(self, *, since: int, each: Callable[[Source, Document], None]) -> None:
        path = paths.config_maps(self._namespace)
        try:
            async for page in self._client.pages(path, limit=_PAGE, params=_selector("in", since)):
                await asyncio.to_thread(_read_all, page.items or [], each)
        except KubeError as error:
            raise _failure(error) from error

    async def change(self, source: Source, change: Callable[[Document], Document | None]) -> None:
        async def decide(there: bytes | None) -> dict[str, Any] | Instead:
            packed = await asyncio.to_thread(_changed, there, change)
            return Instead.UNCHANGED if packed is None else _manifest(source, packed)

        try:
            await change_object(self._client, paths.config_maps(self._namespace), _name(source), decide)
        except KubeError as error:
            raise _failure(error) from error
        except Contended as error:
            raise UsageChanged(str(error)) from error

    async def drop_before(self, day: int) -> None:
        path = paths.config_maps(self._namespace)
        try:
            async for page in self._client.pages(path, limit=_PAGE, params=_selector("notin", day)):
                for item in page.items or []:
                    name = read(item, _ConfigMap).metadata.name
                    await unless_missing(self._client, "DELETE", f"{path}/{name}")
        except KubeError as error:
            raise _failure(error) from error


def pack(document: Document) -> bytes:
    return zlib.compress(msgspec.json.encode(document))


def unpack(packed: bytes) -> Document:
    """Return what was packed. Raises zlib.error or ValueError."""
    return msgspec.json.decode(zlib.decompress(packed), type=Document)


def _read_all(items: Iterable[msgspec.Raw], each: Callable[[Source, Document], None]) -> None:
    """Call `each` with every document. Raises BackendError, KubeUnreachable."""
    for item in items:
        one = read(item, _ConfigMap)
        each(_source(one.metadata.name), one.document)


def _changed(there: bytes | None, change: Callable[[Document], Document | None]) -> str | None:
    """Return the value that replaces a document's, or None. Raises BackendError, KubeUnreachable."""
    changed = change(Document() if there is None else read(there, _ConfigMap).document)
    return None if changed is None else base64.b64encode(pack(changed)).decode()


def _manifest(source: Source, packed: str) -> dict[str, Any]:
    labels = {LABEL_NAME: APP, LABEL_COMPONENT: USAGE_COMPONENT, LABEL_USAGE_DAY: str(source.day)}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": _name(source), "labels": labels},
        "binaryData": {_KEY: packed},
    }


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
