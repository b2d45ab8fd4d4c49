"""A reflector against a scripted API server: every failure of a list or a watch, and what it asks for next."""

from __future__ import annotations

import asyncio
import logging

import pytest
from sandlot_kube.objects import Pod
from sandlot_kube.reflector import Reflector

from tests.kube.following import PATH, Seen, following, requests
from tests.kube.scripted import event, failed, listed, pod, stay_open, streamed
from tests.waiting import until


async def test_a_list_then_a_watch_from_there(server_and_client) -> None:
    script, client = server_and_client
    script.lists = [listed(pod("a", 3), pod("b", 4), version=7)]
    script.watches = [
        streamed(
            event("MODIFIED", pod("a", 8)),
            event("ADDED", pod("c", 9)) + event("DELETED", pod("b", 10)),
            stay=True,
        )
    ]
    async with following(client, params={"labelSelector": "x=y"}) as (reflector, seen):
        assert not reflector.synced.is_set()
        await reflector.synced.wait()
        await seen.until(lambda: len(seen.told) == 4)
    assert seen.told == [("all", ["a", "b"]), ("changed", "a"), ("changed", "c"), ("deleted", "b")]
    [watch] = script.queries(watch=True)
    assert watch["resourceVersion"] == "7"
    assert watch["allowWatchBookmarks"] == "true"
    assert all(query["labelSelector"] == "x=y" for query in (watch, *script.queries(watch=False)))


async def test_a_long_list_is_read_by_pages(server_and_client) -> None:
    script, client = server_and_client
    script.lists = [listed(pod("a", 1), version=7, go_on="next"), listed(pod("b", 2), version=7)]
    async with following(client, page=1) as (reflector, seen):
        await reflector.synced.wait()
    assert seen.told == [("all", ["a", "b"])]
    assert [query.get("continue") for query in script.queries(watch=False)] == [None, "next"]


async def test_a_list_that_expires_between_pages_begins_anew(server_and_client) -> None:
    script, client = server_and_client
    script.lists = [
        listed(pod("a", 1), version=7, go_on="next"),
        failed(410, "Expired"),
        listed(pod("a", 1), pod("b", 9), version=9),
    ]
    asked: list[int] = []  # requests before each attempt
    async with following(client, listing=lambda: asked.append(len(script.requests))) as (reflector, seen):
        await reflector.synced.wait()
    assert seen.told == [("all", ["a", "b"])]
    assert asked == [0, 2]


async def test_a_watch_that_ends_goes_on_from_the_last_event(server_and_client) -> None:
    script, client = server_and_client
    script.lists = [listed(version=7)]
    script.watches = [streamed(event("ADDED", pod("a", 8))), streamed(event("ADDED", pod("b", 9)), stay=True)]
    async with following(client) as (_, seen):
        await seen.until(lambda: ("changed", "b") in seen.told)
    assert [query["resourceVersion"] for query in script.queries(watch=True)] == ["7", "8"]
    assert len(script.queries(watch=False)) == 1


async def test_a_bookmark_moves_the_version_and_tells_nothing(server_and_client) -> None:
    script, client = server_and_client
    script.lists = [listed(version=7)]
    script.watches = [streamed(event("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": "50"}}))]
    async with following(client) as (_, seen):
        watches = await requests(script, 2, watch=True)
    assert [query["resourceVersion"] for query in watches] == ["7", "50"]
    assert seen.told == [("all", [])]


async def test_a_connection_cut_within_a_line_loses_and_doubles_nothing(server_and_client) -> None:
    script, client = server_and_client
    whole, half = event("ADDED", pod("a", 8)), event("ADDED", pod("b", 9))
    script.lists = [listed(version=7)]
    script.watches = [streamed(whole, half[:25], cut=True), streamed(half, stay=True)]
    async with following(client) as (_, seen):
        await seen.until(lambda: ("changed", "b") in seen.told)
    assert seen.told == [("all", []), ("changed", "a"), ("changed", "b")]
    assert [query["resourceVersion"] for query in script.queries(watch=True)] == ["7", "8"]


async def test_a_clean_end_within_a_line_is_a_cut_too(server_and_client) -> None:
    script, client = server_and_client
    half = event("ADDED", pod("b", 9))
    script.lists = [listed(version=7)]
    script.watches = [streamed(half[:-5]), streamed(half, stay=True)]
    async with following(client) as (_, seen):
        await seen.until(lambda: ("changed", "b") in seen.told)
    assert seen.told == [("all", []), ("changed", "b")]


async def test_a_line_in_many_pieces_and_a_large_one(server_and_client) -> None:
    script, client = server_and_client
    large = event("ADDED", pod("large", 8, message="x" * 1_000_000))
    small = event("ADDED", pod("small", 9))
    pieces = [small[at : at + 1] for at in range(len(small))]
    script.lists = [listed(version=7)]
    script.watches = [streamed(large, *pieces, stay=True)]
    async with following(client) as (_, seen):
        await seen.until(lambda: ("changed", "small") in seen.told)
    assert seen.told == [("all", []), ("changed", "large"), ("changed", "small")]


async def test_gone_as_an_event_lists_again(server_and_client) -> None:
    script, client = server_and_client
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
    script.lists = [listed(pod("a", 1), version=7), listed(pod("b", 60), version=70)]
    script.watches = [streamed(event("ERROR", gone)), stay_open()]
    async with following(client) as (_, seen):
        await seen.until(lambda: len(seen.told) == 2)
        watches = await requests(script, 2, watch=True)
    assert seen.told == [("all", ["a"]), ("all", ["b"])]
    assert [query["resourceVersion"] for query in watches] == ["7", "70"]


async def test_gone_as_a_status_lists_again(server_and_client) -> None:
    script, client = server_and_client
    script.lists = [listed(version=7), listed(pod("b", 60), version=70)]
    script.watches = [failed(410, "Gone"), stay_open()]
    async with following(client) as (_, seen):
        await seen.until(lambda: len(seen.told) == 2)
    assert seen.told[-1] == ("all", ["b"])


async def test_another_error_event_goes_on_from_where_it_was(server_and_client) -> None:
    script, client = server_and_client
    broken = {"kind": "Status", "code": 500, "reason": "InternalError", "message": "etcd is away"}
    script.lists = [listed(version=7)]
    script.watches = [streamed(event("ERROR", broken)), streamed(event("ADDED", pod("a", 8)), stay=True)]
    async with following(client) as (_, seen):
        await seen.until(lambda: ("changed", "a") in seen.told)
    assert [query["resourceVersion"] for query in script.queries(watch=True)] == ["7", "7"]


@pytest.mark.parametrize("status", [400, 404])
@pytest.mark.parametrize("in_the_stream", [False, True])
async def test_a_watch_that_is_rejected_lists_again(
    server_and_client, status: int, in_the_stream: bool
) -> None:
    """The server would reject the same version every time; that of a new list it may know."""
    script, client = server_and_client
    script.lists = [listed(pod("a", 1), version=7), listed(pod("b", 60), version=70)]
    rejection = {"kind": "Status", "code": status, "reason": "Rejected", "message": "it is rejected"}
    rejected = streamed(event("ERROR", rejection)) if in_the_stream else failed(status, "Rejected")
    script.watches = [rejected, stay_open()]
    async with following(client) as (_, seen):
        watches = await requests(script, 2, watch=True)
    assert [query["resourceVersion"] for query in watches] == ["7", "70"]
    assert seen.told == [("all", ["a"]), ("all", ["b"])]


async def test_silence_is_a_dead_connection(server_and_client) -> None:
    script, client = server_and_client
    script.lists = [listed(version=7)]
    # On a loaded machine a watch that does say something may be given up before it is read, too.
    script.watches = [stay_open(), *[streamed(event("ADDED", pod("a", 8)), stay=True)] * 20]
    async with following(client, idle=1.0) as (_, seen):
        await seen.until(lambda: ("changed", "a") in seen.told)
    assert [query["resourceVersion"] for query in script.queries(watch=True)][:2] == ["7", "7"]


async def test_what_cannot_be_decoded_is_left_out_and_told(server_and_client, caplog) -> None:
    script, client = server_and_client
    bad = {"metadata": {"name": "bad", "resourceVersion": "8"}, "status": {"phase": 7}}
    script.lists = [listed(pod("a", 1), bad, version=7)]
    script.watches = [
        streamed(event("MODIFIED", bad), b"no json\n"),
        streamed(event("ADDED", pod("b", 9)), stay=True),
    ]
    with caplog.at_level(logging.WARNING):
        async with following(client) as (_, seen):
            await seen.until(lambda: ("changed", "b") in seen.told)
    assert seen.told == [("all", ["a"]), ("changed", "b")]
    assert "skipped an invalid object" in caplog.text
    assert [query["resourceVersion"] for query in script.queries(watch=True)] == ["7", "8"]


async def test_a_callback_that_fails_stops_nothing(server_and_client, caplog) -> None:
    script, client = server_and_client
    script.lists = [listed(version=7)]
    script.watches = [streamed(event("ADDED", pod("a", 8)), event("DELETED", pod("a", 9)), stay=True)]
    seen = Seen()

    def broken(pod: Pod) -> None:
        raise ZeroDivisionError

    reflector = Reflector(
        client, PATH, item=Pod, replaced=seen.replaced, changed=broken, deleted=seen.deleted
    )
    task = asyncio.create_task(reflector.run())
    await seen.until(lambda: ("deleted", "a") in seen.told)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert "ZeroDivisionError" in caplog.text


async def test_a_list_that_could_not_be_applied_is_read_again(server_and_client, caplog) -> None:
    script, client = server_and_client
    script.lists = [listed(pod("a", 1), version=7), listed(pod("b", 8), version=9)]
    failures: list[str | None] = []
    applied: list[str] = []

    def replaced(pods: list[Pod]) -> None:
        failures.append(reflector.failure)
        [name] = [pod.metadata.name for pod in pods]
        if name == "a":
            raise ZeroDivisionError("of a")
        applied.append(name)

    async with following(client, replaced=replaced) as (reflector, _):
        await reflector.synced.wait()
        assert applied == ["b"]
        assert reflector.failure is None
    assert failures[0] is None
    assert "of a" in (failures[1] or "")
    assert "ZeroDivisionError" in caplog.text


async def test_a_failure_that_nobody_foresaw_ends_no_watch_for_ever(
    server_and_client, monkeypatch: pytest.MonkeyPatch, caplog
) -> None:
    script, client = server_and_client
    script.lists = [listed(pod("a", 1), version=7), listed(pod("b", 8), version=9)]
    lines, failures = client.lines, [ZeroDivisionError("of a line")]

    def failing_once(*args, **options):
        if failures:
            raise failures.pop()
        return lines(*args, **options)

    monkeypatch.setattr(client, "lines", failing_once)
    async with following(client, longest_wait=0.5, shortest_wait=0.5) as (reflector, seen):
        await until(lambda: reflector.failure == "of a line", pause=0.001)
        assert reflector.watching_since is None
        await seen.until(lambda: len(seen.told) == 2)
    assert seen.told == [("all", ["a"]), ("all", ["b"])]
    assert "ZeroDivisionError" in caplog.text
