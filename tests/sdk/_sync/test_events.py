# This file is auto-generated from tests/sdk/_async/test_events.py by tools/async_to_sync.py: do not change it.
"""The stream of events: of a real gateway, and across connections that break and cursors that expire."""

from __future__ import annotations

import json

import pytest
from sandlot import AuthError, Client, Events, EventsExpired, Sandbox

from tests.sdk.service.events import event, scripted
from tests.stack import Stack


@pytest.mark.root
def test_a_stream_has_a_sandboxs_life_and_goes_on_at_its_cursor(stack: Stack) -> None:
    with Client(url=stack.url, api_key=stack.api_key) as client:
        with Events(labels=["life", "stream"], client=client) as events:
            with Sandbox.create(client=client, labels=["stream", "life"], name="n") as box:
                ready = events.__next__()
                place = events.cursor
            end = events.__next__()
        assert (ready.sandbox_id, ready.type, ready.name, ready.labels) == (
            box.id,
            "sandbox.ready",
            "n",
            ("stream", "life"),
        )
        assert (end.sandbox_id, end.type, end.verdict) == (box.id, "sandbox.ended", "deleted")
        assert not end.infrastructure
        with Events(cursor=place, sandbox_ids=[box.id], client=client) as events:
            assert (events.__next__()).id == end.id
        with Events(cursor="oldest", types=["sandbox.ready"], sandbox_ids=[box.id], client=client) as events:
            assert (events.__next__()).id == ready.id
    with Client(url=stack.url, api_key="wrong") as client:
        with pytest.raises(AuthError):
            Events(client=client).open()


def test_a_broken_connection_goes_on_and_repeats_nothing() -> None:
    one = event("a", "ready", cursor="c-1-1")
    other = event("a", "ended", cursor="d-9-3", verdict="node_lost", exitCode=None)
    with scripted(
        (200, b": hello\n\n" + one + other[:-3]),
        (503, b"{}"),
        (200, b"id: d-8-2\n\n" + one + other),
        (200, event("b", "ready", cursor="d-10-4")),
    ) as server:
        with Client(url=server.url, api_key="k") as client:
            events = Events(client=client, run="r")
            told = [events.__next__() for _ in range(2)]
            place = events.cursor
            told.append(events.__next__())
            events.close()
    assert [one.id for one in told] == ["a:ready", "a:ended", "b:ready"]
    assert [one.cursor for one in told] == ["c-1-1", "d-9-3", "d-10-4"]
    assert [one.infrastructure for one in told] == [False, True, False]
    assert place == "d-9-3"
    assert [query.get("cursor") for query in server.queries] == [None, ["c-1-1"], ["c-1-1"], ["d-9-3"]]
    assert all(query["run"] == ["r"] for query in server.queries)


def test_an_expired_cursor_is_raised_once_with_where_to_go_on() -> None:
    refusal = json.dumps({"detail": "cursor: too old", "errors": [], "resume": "c-5-5"}).encode()
    slow = b'event: expired\ndata: {"message": "too slow", "resume": "c-8-8"}\n\n'
    with scripted(
        (410, refusal),
        (200, event("a", "ready", cursor="c-6-6") + slow),
        (200, event("b", "ready", cursor="c-9-9")),
    ) as server:
        with Client(url=server.url, api_key="k") as client:
            events = Events(cursor="c-1-1", client=client)
            with pytest.raises(EventsExpired, match="cursor: too old") as refused:
                events.__next__()
            assert refused.value.cursor == "c-5-5"
            assert (events.__next__()).id == "a:ready"
            with pytest.raises(EventsExpired, match="too slow"):
                events.__next__()
            assert (events.__next__()).id == "b:ready"
            events.close()
    assert [query["cursor"] for query in server.queries] == [["c-1-1"], ["c-5-5"], ["c-8-8"]]
