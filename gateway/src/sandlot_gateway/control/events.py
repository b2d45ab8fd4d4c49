"""Routes of events: a stream for trainers, and what other gateways fetch for theirs."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Header, Query, Response
from fastapi.security import HTTPAuthorizationCredentials

from sandlot_gateway.control.errors import ApiError, errors
from sandlot_gateway.control.field_types import Label, RunName, SandboxIdText
from sandlot_gateway.control.paths import PREFIX
from sandlot_gateway.control.peers import check_peer
from sandlot_gateway.control.present import NO_STORE, iso
from sandlot_gateway.control.services import Have, Who, bearer
from sandlot_gateway.core.gateways import PeerEvents
from sandlot_gateway.events.cursor import Cursor, read_cursor
from sandlot_gateway.events.event import EventFilter, read_types
from sandlot_gateway.events.relay import MOST
from sandlot_gateway.events.service import Leaving, TooManyStreams
from sandlot_gateway.events.tenant import CursorExpired

router = APIRouter(prefix=PREFIX, tags=["events"])
peers = APIRouter(include_in_schema=False)

_OLDEST = "oldest"
_PEER_BYTES = 4 << 20  # of one answer to another gateway
_Bearer = Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]


@router.get(
    "/events",
    response_class=Response,
    responses={
        **errors(410, 422, 429),
        200: {"content": {"text/event-stream": {}}, "description": "Events, until one side ends the stream."},
    },
    summary="(Sandlot) Stream of the tenant's events",
)
async def events(
    have: Have,
    who: Who,
    credentials: _Bearer,
    cursor: Annotated[
        str | None,
        Query(max_length=64, description="Where to go on, or `oldest`; default: what comes from now on."),
    ] = None,
    last_event_id: Annotated[
        str | None,
        Header(alias="last-event-id", max_length=64, description="As `cursor`, which it overrides."),
    ] = None,
    labels: Annotated[
        list[Label] | None, Query(max_length=64, description="May be repeated; all must match.")
    ] = None,
    run: Annotated[RunName | None, Query(description="Only of sandboxes of this run.")] = None,
    sandbox_ids: Annotated[
        list[SandboxIdText] | None, Query(max_length=100, description="May be repeated; one must match.")
    ] = None,
    types: Annotated[
        list[str] | None, Query(max_length=16, description="May be repeated; one must match.")
    ] = None,
    follow: Annotated[bool, Query(description="false: end with the last event that is kept.")] = True,
) -> Response:
    """Send events as they come, each with its cursor as `id`; a comment or a cursor at least every 15 seconds."""
    name = "cursor" if last_event_id is None else "Last-Event-ID"
    text = last_event_id or cursor
    wanted = EventFilter(
        labels=frozenset(labels or ()),
        sandbox_ids=frozenset(sandbox_ids or ()),
        types=_types(types),
        run=run,
    )
    token = credentials.credentials if credentials is not None else ""
    try:
        return await have.events.stream(
            who.name,
            cursor=None if text in (None, _OLDEST) else _cursor(text, field=name),
            from_oldest=text == _OLDEST,
            wanted=wanted,
            is_allowed=lambda: have.keys.tenant(token) == who.name,
            follow=follow,
        )
    except CursorExpired as error:
        raise ApiError(
            410,
            f"{name}: events after this cursor are not kept any more: list the sandboxes, and resume from `resume`",
            field=name,
            extra={"resume": str(error.resume), "complete_since": iso(error.complete_since)},
        ) from error
    except TooManyStreams as error:
        raise ApiError(429, str(error), headers={"retry-after": "5"}) from error
    except Leaving as error:
        raise ApiError(
            503,
            "the gateway is shutting down: send the request again, to another gateway",
            headers={"retry-after": "1"},
        ) from error


@peers.get("/internal/events")
async def peer_events(
    have: Have,
    credentials: _Bearer,
    tenant: Annotated[str, Query(max_length=64)],
    since: float,
    after: Annotated[str | None, Query(max_length=64)] = None,
) -> Response:
    """Return the tenant's events after a cursor of this gateway, or else what it learned of from `since` on."""
    check_peer(credentials, have=have)
    journal = have.events.journal
    kept = journal.of(tenant)
    known = None if after is None else _cursor(after, field="after")
    if known is not None and known.journal == journal.id:
        number = max(known.number + 1, kept.first)
    else:
        number = kept.number_at(since)
    batch = kept.read(number, wanted=EventFilter(), most=MOST, most_bytes=_PEER_BYTES)
    answer = PeerEvents(
        cursor=str(kept.cursor(batch.next, now=journal.now())),
        known_since=kept.known_since,
        dropped_until=kept.dropped_until,
        more=batch.next < kept.end,
        events=[msgspec.Raw(entry.event.text) for _, entry in batch.entries],
    )
    return Response(msgspec.json.encode(answer), media_type="application/json", headers=NO_STORE)


def _types(names: list[str] | None) -> frozenset[str]:
    try:
        return read_types(names or ())
    except ValueError as error:
        raise ApiError(422, f"types: {error}", field="types") from error


def _cursor(text: str | None, *, field: str) -> Cursor:
    try:
        return read_cursor(text or "")
    except ValueError as error:
        raise ApiError(422, f"{field}: {error}", field=field) from error
