"""Follows a collection of the API server by list and watch, through every failure."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

import msgspec

from sandlot_kube import backoff
from sandlot_kube.client import KubeClient
from sandlot_kube.errors import KubeError
from sandlot_kube.objects import Metadata
from sandlot_kube.refusals import explained

_log = logging.getLogger(__name__)
# Statuses that say nothing of the version: the token, its rights, a timeout, too many requests.
_PASSING = (401, 403, 408, 429)


class _Item(Protocol):
    metadata: Metadata


T = TypeVar("T", bound=_Item)


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Version(msgspec.Struct):
    metadata: Metadata


class _Status(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""


class _Gone(Exception):
    """The API server no longer has our resource version."""


class _NotApplied(Exception):
    """A callback failed on a list."""


class Reflector(Generic[T]):
    """Calls `replaced` with the whole collection after a list, `changed` and `deleted` with single objects.

    Calls `listing` before each list. What its reader writes itself meanwhile may be missing from the list, which shows
    the collection as it was when its first page was read.

    The callbacks run in the event loop and return at once. If one fails on a list, the list is read again; one that
    fails on a single object is logged and skips that only. An object that cannot be decoded is logged and left out.

    `idle`: seconds of silence on a watch after which it fails (the API server sends a bookmark about every minute). A
    connection whose peer is gone fails much earlier (`Sockets`).
    """

    def __init__(
        self,
        client: KubeClient,
        path: str,
        *,
        item: type[T],
        replaced: Callable[[list[T]], None],
        changed: Callable[[T], None],
        deleted: Callable[[T], None],
        listing: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        params: Mapping[str, str] | None = None,
        idle: float = 90.0,
        page: int = 500,
        shortest_wait: float = 0.2,
        longest_wait: float = 10.0,
    ) -> None:
        self.path = path
        self.synced = asyncio.Event()  # after the first list
        self.failure: str | None = None  # of the last attempt; None while the watch runs
        self.watching_since: float | None = (
            None  # by `clock`; everything written before a gap in the watch is older
        )
        self._client = client
        self._clock = clock
        self._params = dict(params or {})
        self._decoder = msgspec.json.Decoder(item)
        self._replaced = replaced
        self._changed = changed
        self._deleted = deleted
        self._listing = listing
        self._idle = idle
        self._page = page
        self._shortest_wait = shortest_wait
        self._longest_wait = longest_wait
        self._version: str | None = None  # None: list first
        self._failures = 0

    async def run(self) -> None:
        """Run until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            asked_for = 0.0  # seconds that the server wants us to wait
            try:
                if self._version is None:
                    await self._list()
                await self._watch()
            except _Gone as error:
                self._version = None
                self.watching_since = None  # until the list is there, changes are missing
                if not self.synced.is_set():
                    self.failure = str(error)
                _log.info("%s: listing again: %s", self.path, error)
            except Exception as error:
                why = explained(error, self.path)
                foreseen = isinstance(error, (KubeError, msgspec.DecodeError, _NotApplied))
                if self.failure is None:
                    _log.warning("cannot watch %s, trying again: %s", self.path, why, exc_info=not foreseen)
                self.failure = why
                rejected = False
                if isinstance(error, KubeError):
                    asked_for = error.retry_after or 0.0
                    rejected = 400 <= error.status < 500 and error.status not in _PASSING
                if rejected or not foreseen:
                    self._version = None  # the same one would be rejected, or fail, every time
                    self.watching_since = None
            # The server ends a watch after some minutes as a rule; repeated ends at once must not become
            # a busy loop.
            lasted = loop.time() - began
            if lasted > self._longest_wait:
                self._failures = 0
            if self.failure is None and lasted > self._shortest_wait:
                continue
            self._failures += 1
            wait = backoff.pause(self._failures, shortest=self._shortest_wait, longest=self._longest_wait)
            await asyncio.sleep(max(asked_for, wait))

    async def _list(self) -> None:
        items: list[T] = []
        version = ""
        self._apply(self._listing)
        try:
            async for page in self._client.pages(
                self.path, limit=self._page, params=self._params, timeout=60.0
            ):
                items += [item for raw in page.items or [] if (item := self._decode(raw)) is not None]
                version = page.metadata.resource_version
                if page.metadata.go_on:
                    self.failure = None  # it goes on, however slowly
        except KubeError as error:
            if error.status == 410:
                raise _Gone(str(error)) from error
            raise
        self._apply(self._replaced, items)
        self._version = version
        self._well()
        self.synced.set()

    async def _watch(self) -> None:
        assert self._version is not None
        params = {
            **self._params,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            # so that gateways do not reconnect all at once
            "timeoutSeconds": str(random.randint(240, 360)),
        }
        lines = self._client.lines(self.path, params=params, idle=self._idle, opened=self._well)
        try:
            async for line in lines:
                self._event(msgspec.json.decode(line, type=_Event))
        except KubeError as error:
            if error.status == 410:
                raise _Gone(str(error)) from error
            raise
        finally:
            await lines.aclose()

    def _event(self, event: _Event) -> None:
        if event.type == "ERROR":
            status = msgspec.json.decode(event.object, type=_Status)
            if status.code == 410:
                raise _Gone(status.message)
            raise KubeError(status=status.code, reason=status.reason, message=status.message)
        if event.type == "BOOKMARK":
            version = msgspec.json.decode(event.object, type=_Version).metadata.resource_version
        else:
            item = self._decode(event.object)
            if item is None:
                version = msgspec.json.decode(event.object, type=_Version).metadata.resource_version
            else:
                version = item.metadata.resource_version
                self._call(self._deleted if event.type == "DELETED" else self._changed, item)
        self._version = version or self._version
        self._failures = 0

    def _decode(self, raw: msgspec.Raw) -> T | None:
        try:
            return self._decoder.decode(raw)
        except msgspec.ValidationError as error:
            _log.warning("%s: skipped an invalid object: %s", self.path, error)
            return None

    def _call(self, callback: Callable[..., None], *values: object) -> None:
        try:
            callback(*values)
        except Exception:
            _log.exception("%s: a callback failed; its change is lost", self.path)

    def _apply(self, callback: Callable[..., None], *values: object) -> None:
        try:
            callback(*values)
        except Exception as error:
            # Else the collection would count as synced, and what it lacks as deleted.
            _log.exception("%s: a callback failed on a list, which is read again", self.path)
            raise _NotApplied(f"a callback failed on the list: {error!r}") from error

    def _well(self) -> None:
        if self.failure is not None or self.watching_since is None:
            self.watching_since = self._clock()
        if self.failure is not None:
            _log.info("watching %s again", self.path)
            self.failure = None
