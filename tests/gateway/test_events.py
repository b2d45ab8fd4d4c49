"""The stream of events: what it has for whom, where it goes on, and how it ends."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sandlot_contract.ids import SandboxId
from sandlot_contract.statuses import Status
from sandlot_gateway.events import stream as streams
from sandlot_gateway.events.event import EventFilter
from sandlot_gateway.events.journal import Journal
from sandlot_gateway.events.stream import EventStream, StreamCounts
from sandlot_gateway.sandboxes import Sandbox, Spec

from tests.gateway.conftest import API, Running, running
from tests.gateway.event_streams import streaming
from tests.gateway.machine import Machine
from tests.waiting import until

EVENTS = f"{API}/events"


async def ended(box: Running, sandbox_id: str) -> None:
    answer = await box.client.delete(f"{API}/sandbox/{sandbox_id}")
    assert answer.status_code == 200, answer.text


async def test_a_stream_has_what_its_filter_takes_of_its_own_tenant(box: Running) -> None:
    other = box.as_tenant("key-b")
    query = {"labels": ["of-this", "test"], "run": "r"}
    async with (
        streaming(box.client, params=query) as stream,
        streaming(box.client, headers=other) as others,
    ):
        answer = await box.client.post(
            f"{API}/sandbox",
            json={"docker_image": "host", "labels": ["of-this", "test"], "run": "r"},
            headers=other,
        )
        its = answer.json()["id"]
        await box.create(labels=["of-this"], run="r")
        await box.create(labels=["of-this", "test"], run="another")
        made = await box.create(labels=["test", "more", "of-this"], run="r", name="n")
        box.machine.of_sandbox(made["id"]).end("oom", "too much")
        ready, end = await stream.take(2)
        assert (ready.event, ready.data["id"]) == ("sandbox.ready", f"{made['id']}:ready")
        assert ready.data["timestamp"] == made["startedAt"]
        assert ready.data["type"] == ready.event
        expected: dict[str, Any] = {
            "sandboxId": made["id"],
            "name": "n",
            "run": "r",
            "labels": ["test", "more", "of-this"],
            "status": "RUNNING",
            "place": None,
            "verdict": None,
            "exitCode": None,
            "message": None,
        }
        assert ready.data["data"] == expected
        told = {"status": "ERROR", "verdict": "oom", "message": "too much"}
        assert end.data["data"] == {**expected, **told}
        assert end.data["id"] == f"{made['id']}:ended"
        assert (await others.next()).what == (its, "sandbox.ready")
        await ended(box, made["id"])
        answer = await box.client.delete(f"{API}/sandbox/{its}", headers=other)
        assert (await others.next()).what == (its, "sandbox.ended")
    only = {"types": "sandbox.ended", "sandbox_ids": [made["id"], its], "cursor": "oldest"}
    async with streaming(box.client, params=only) as stream:
        assert (await stream.next()).what == (made["id"], "sandbox.ended")
        await ended(box, (last := await box.create(labels=["ended"]))["id"])
    async with streaming(box.client, params={"labels": "ended", "cursor": "oldest"}) as stream:
        assert [one.what for one in await stream.take(2)] == [
            (last["id"], "sandbox.ready"),
            (last["id"], "sandbox.ended"),
        ]


async def test_a_create_that_was_answered_pending_has_its_place(box: Running, machine: Machine) -> None:
    machine.hold_ready = asyncio.Event()
    async with streaming(box.client) as stream:
        waits = [await box.create(wait_seconds=0.1) for _ in range(2)]
        told = await stream.take(2)
        assert [one.what for one in told] == [(one["id"], "sandbox.queued") for one in waits]
        assert (
            [one.data["data"]["place"] for one in told] == [one["queuePosition"] for one in waits] == [1, 2]
        )
        machine.hold_ready.set()
        assert {(await stream.next()).what for _ in waits} == {(one["id"], "sandbox.ready") for one in waits}


async def test_a_stream_goes_on_after_its_cursor_also_after_a_restart(
    state_dir: Path, machine: Machine
) -> None:
    async with running(state_dir, machine) as box:
        async with streaming(box.client) as stream:
            begin = await stream.next(any_kind=True)
            first = await box.create()
            place = (await stream.next()).id
        second = await box.create()
        await ended(box, second["id"])
        for options in ({"params": {"cursor": place}}, {"headers": {"Last-Event-ID": place}}):
            async with streaming(box.client, **options) as stream:
                before = await stream.take(2)
            assert [one.what for one in before] == [
                (second["id"], "sandbox.ready"),
                (second["id"], "sandbox.ended"),
            ]
        async with streaming(box.client, params={"cursor": begin.id}) as stream:
            assert (await stream.next()).what == (first["id"], "sandbox.ready")
    async with (
        running(state_dir, machine) as box,
        # By time and with an overlap: it repeats, with the same ids, and leaves nothing out.
        streaming(box.client, params={"cursor": place}) as stream,
    ):
        again = await stream.take(3)
        assert [one.data for one in again][1:] == [one.data for one in before]
        await ended(box, first["id"])
        assert (await stream.next()).what == (first["id"], "sandbox.ended")


async def test_a_cursor_that_is_too_old_is_told_where_nothing_is_missing(
    state_dir: Path, machine: Machine
) -> None:
    async with running(state_dir, machine, events_kept=10) as box:
        async with streaming(box.client) as stream:
            place = (await stream.next(any_kind=True)).id
        made = [await box.create() for _ in range(12)]
        foreign = f"00000000-1-{int(box.gateway.journal.now() * 1000) - 3_600_000}"
        for cursor in (place, foreign):
            answer = await box.client.get(EVENTS, params={"cursor": cursor})
            assert answer.status_code == 410, answer.text
            assert answer.json()["errors"][0]["param"] == "cursor"
            async with streaming(box.client, params={"cursor": answer.json()["resume"]}) as stream:
                told = [one.what for one in await stream.take(10)]
            assert told == [(one["id"], "sandbox.ready") for one in made[2:]]


@pytest.mark.parametrize(
    "query", [{"cursor": "nonsense"}, {"types": "sandbox.exploded"}, {"run": "a b"}, {"labels": ""}]
)
async def test_what_is_no_cursor_type_run_or_label_is_a_422(box: Running, query: dict[str, str]) -> None:
    answer = await box.client.get(EVENTS, params=query)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["param"].startswith(next(iter(query)))


async def test_a_tenant_has_as_many_streams_as_it_may_and_each_ends_with_the_gateway(
    state_dir: Path, machine: Machine
) -> None:
    async with running(state_dir, machine, event_streams=1) as box:
        async with streaming(box.client) as stream:
            refused = await box.client.get(EVENTS)
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
            async with streaming(box.client, headers=box.as_tenant("key-b")):
                assert "\nsandlot_event_streams 2.0\n" in await box.metrics()
        await until(lambda: box.gateway.events.streams == 0)
        async with streaming(box.client) as stream:
            await stream.next(any_kind=True)
            box.ending.begin()
            last = await stream.next(any_kind=True)
            assert "the gateway is leaving" in last.comments[0]
            with pytest.raises(StopAsyncIteration):
                await stream.next()


async def test_a_stream_ends_when_its_key_is_withdrawn(state_dir: Path, machine: Machine) -> None:
    file = state_dir / "keys"
    file.write_text("old:alpha\nnew:alpha\n")
    async with (
        running(state_dir, machine, api_keys_file=file) as box,
        streaming(box.client, headers=box.as_tenant("old")) as stream,
    ):
        await stream.next(any_kind=True)
        file.write_text("new:alpha\n")

        async def is_withdrawn() -> bool:
            return (await box.client.get(f"{API}/pools", headers=box.as_tenant("old"))).status_code == 401

        await until(is_withdrawn)
        await box.create()
        assert "not valid any more" in (await stream.next(any_kind=True)).comments[0]
        with pytest.raises(StopAsyncIteration):
            await stream.next()


@dataclass
class Direct:
    """A stream of a journal without a gateway, and what it sends."""

    journal: Journal
    wanted: EventFilter = field(default_factory=EventFilter)
    sent: list[Any] = field(default_factory=list[Any])
    ends: list[str] = field(default_factory=list[str])
    reads: asyncio.Event = field(default_factory=asyncio.Event)
    leaves: asyncio.Event = field(default_factory=asyncio.Event)

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        if len(self.sent) > 1:
            await self.reads.wait()

    async def receive(self) -> Any:
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def serve(self) -> None:
        stream = EventStream(
            self.journal.of("t"),
            tenant="t",
            journal=self.journal,
            number=1,
            wanted=self.wanted,
            is_allowed=lambda: True,
            follow=True,
            counts=StreamCounts(self.ends.append),
        )
        await stream({}, self.receive, self.send)


async def test_a_client_that_reads_too_slowly_is_told_so_last() -> None:
    journal = Journal(entries=100, memory=1 << 20, keep=60.0)
    journal.recovered(known_since=0.0)
    direct = Direct(journal)
    serving = asyncio.create_task(direct.serve())
    await until(lambda: len(direct.sent) == 2)
    for number in range(200):
        journal.ready(_sandbox(number))
    direct.reads.set()
    await serving
    assert direct.ends == ["expired"]
    assert direct.sent[-1]["body"].startswith(b"event: expired\ndata: {")
    assert direct.sent[-1]["more_body"] is False
    assert len(direct.sent) == 3


async def test_a_filter_that_takes_none_of_many_events_has_recent_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT", 0.05)
    journal = Journal(entries=20_000, memory=1 << 26, keep=60.0)
    journal.recovered(known_since=0.0)
    direct = Direct(journal, wanted=EventFilter(run="another"))
    direct.reads.set()
    serving = asyncio.create_task(direct.serve())
    numbers = itertools.count()

    def has_heartbeat() -> bool:
        journal.ready(_sandbox(next(numbers)))
        return len(direct.sent) > 2

    await until(has_heartbeat, pause=0.005, seconds=30)
    number = int(direct.sent[2]["body"].split(b"-")[1])
    assert direct.sent[2]["body"].startswith(b": heartbeat\nid: ")
    assert number > 1
    direct.leaves.set()
    await serving


def test_a_tenant_with_many_events_pushes_out_no_others() -> None:
    journal = Journal(entries=10_000, memory=200_000, keep=3600.0)
    journal.recovered(known_since=0.0)
    journal.ready(_sandbox(0, tenant="small"))
    for number in range(1000):
        journal.ready(_sandbox(number, tenant="large"))
    assert journal.bytes <= 200_000
    assert len(journal.of("small")) == 1
    assert 50 < len(journal.of("large")) < 1000


def _sandbox(number: int, *, tenant: str = "t") -> Sandbox:
    return Sandbox(
        id=SandboxId(f"sbx-{number}"),
        tenant=tenant,
        spec=Spec(name="n", image="host"),
        created_at=1.0,
        updated_at=1.0,
        started_at=2.0,
        status=Status.RUNNING,
    )
