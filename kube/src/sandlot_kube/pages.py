"""Reads a collection in pages, of which the API server names each next one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from sandlot_kube.answers import Page, read


class Requests(Protocol):
    """A client of the API server, as `KubeClient` is."""

    async def request(
        self, method: str, path: str, *, params: Mapping[str, str] | None = None, timeout: float | None = None
    ) -> bytes: ...


class Pages:
    """Has nothing to close, unlike a generator: its reader may stop anywhere."""

    def __init__(self, client: Requests, path: str, query: dict[str, str], *, timeout: float) -> None:
        self._client = client
        self._path = path
        self._query = query
        self._timeout = timeout
        self._is_over = False

    def __aiter__(self) -> AsyncIterator[Page]:
        return self

    async def __anext__(self) -> Page:
        if self._is_over:
            raise StopAsyncIteration
        body = await self._client.request("GET", self._path, params=self._query, timeout=self._timeout)
        page = read(body, Page)
        self._query["continue"] = page.metadata.go_on
        self._is_over = not page.metadata.go_on
        return page
