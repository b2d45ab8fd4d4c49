# This file is auto-generated from sdk/src/sandlot/_async/events.py by tools/async_to_sync.py: do not change it.
"""Streams the events of a tenant's sandboxes, across dropped connections and gateways, each event once."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, cast

from sandlot._protocol import documents
from sandlot._protocol.answers import error_for
from sandlot._protocol.messages import Request, with_query
from sandlot._protocol.retry import Retry
from sandlot._protocol.sse import SseDecoder, SseError, SseMessage
from sandlot._sync.client import USER_AGENT, Client, default_client
from sandlot._sync.following import Following
from sandlot._sync.reconnects import SILENCE, received
from sandlot.errors import EventsExpired, ServerError
from sandlot.sandbox_events import SandboxEvent

REMEMBERED = 50_000  # ids by which repeated events are told; another gateway repeats those of a minute


class Events(Following[SandboxEvent]):
    """What happens to the sandboxes of this key's tenant, until it is closed: iterate over it, or over what `with` returns.

    Inside `with`, everything is seen that happens after it was entered. `cursor` is where another stream went on, or
    "oldest"; without one the stream has what comes from now on. `labels` must all match, and one of `types` and of
    `sandbox_ids`.
    """

    def __init__(
        self,
        *,
        cursor: str | None = None,
        labels: Sequence[str] = (),
        run: str | None = None,
        sandbox_ids: Sequence[str] = (),
        types: Sequence[str] = (),
        client: Client | None = None,
    ) -> None:
        super().__init__()
        self._client = client
        self._filters = {
            "labels": tuple(labels),
            "run": run,
            "sandbox_ids": tuple(sandbox_ids),
            "types": tuple(types),
        }
        self._retry: Retry | None = None
        self._read_until = cursor
        self._cursor = cursor
        self._decoder = SseDecoder()
        self._seen: OrderedDict[str, None] = OrderedDict()

    @property
    def cursor(self) -> str | None:
        """Where to go on after the last event that was returned; keep it once that event is done with."""
        return self._cursor

    def open(self) -> None:
        """Connect; iteration and `with` do this by themselves. Raises EventsExpired."""
        if self._body is not None or self._finished:
            return
        if self._client is None:
            self._client = default_client()
        client = self._client
        if self._retry is None:
            self._retry = client.retry(safe=True)
        end = client.endpoint()
        headers = {"Authorization": f"Bearer {end.api_key}", "User-Agent": USER_AGENT}
        target = with_query(f"{end.prefix}/api/v1/events", {**self._filters, "cursor": self._read_until})
        request = Request("GET", end.origin, target, headers=headers, safe=True, timeout=SILENCE)
        body = client.open(request, retry=self._retry)
        if body.status >= 300:
            data = client.rest(body)
            if body.status == 410:
                raise self._expired(documents.parse(data))
            raise error_for(status=body.status, headers=body.headers, body=data)
        self._decoder = SseDecoder()
        self._body = body

    def __next__(self) -> SandboxEvent:
        """Return the next event. Raises EventsExpired, after which iteration goes on with the oldest that is kept."""
        event = super().__next__()
        self._cursor = event.cursor if self._ready else self._read_until
        return event

    def _read(self) -> None:
        """Read once; connect again when the connection is lost."""
        self.open()
        body, retry = self._body, self._retry
        if body is None or retry is None:
            return
        data = received(body, retry, of="events", lost=self._lose)
        if data is None:
            return
        try:
            for message in self._decoder.feed(data):
                self._take(message)
        except (SseError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ServerError(f"the stream of events cannot be read: {error}") from error
        if not self._ready:
            self._cursor = self._read_until

    def _lose(self) -> None:
        self._body = None

    def _take(self, message: SseMessage) -> None:
        if message.event == "expired":
            self._error = self._expired(json.loads(message.data))
            return
        if message.id:
            self._read_until = message.id
        if not message.data:
            return
        event = documents.sandbox_event(json.loads(message.data), cursor=message.id)
        if event.id in self._seen:
            return
        self._seen[event.id] = None
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        self._ready.append(event)

    def _expired(self, document: Any) -> EventsExpired:
        known = cast(dict[str, Any], document) if isinstance(document, dict) else {}
        text = str(known.get("detail") or known.get("message") or "some events are not kept any more")
        self._read_until = str(known.get("resume") or "oldest")
        return EventsExpired(text, cursor=self._read_until)
