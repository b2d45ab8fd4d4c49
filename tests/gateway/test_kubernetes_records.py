"""What is written to Sandbox resources, request by request."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from aiohttp import web
from sandlot_gateway.backends.kubernetes.debouncer import Debouncer
from sandlot_gateway.backends.kubernetes.records import Records
from sandlot_gateway.backends.kubernetes.translate import to_kube
from sandlot_gateway.core.owners import Claim
from sandlot_kube import paths
from sandlot_kube.objects import PoolReuse
from sandlot_kube.reuse import marks

from tests.gateway.written_records import (
    CHANGED,
    CLAIM,
    COLLECTION,
    CONFLICT,
    CREATED,
    END,
    MISSING,
    PENDING,
    POD,
    TEMPLATE,
    TOO_LATE,
    found,
    methods,
    resource,
    writing,
)
from tests.kube.scripted import answered, scripted
from tests.waiting import loop_turns


async def test_a_warm_claim_is_one_create_and_its_end_one_change() -> None:
    async with writing(CREATED, CHANGED) as (records, sent, seen):
        records.claim(POD, CLAIM, template=TEMPLATE, cold=False, node="n1")
        await records.flush(timeout=60)
        records.end(POD, END, template=TEMPLATE, cold=False)
        await records.flush(timeout=60)
    assert methods(sent) == [("POST", ""), ("PATCH", "/sb-0/status")]
    assert sent[0][2]["spec"] == {
        "template": msgspec.to_builtins(to_kube(TEMPLATE)),
        "podName": POD,
        "sandboxId": "sb-0",
        "tenant": "alpha",
        "labels": ["one"],
        "nodeName": "n1",
        "state": "Running",
    }
    assert sent[0][2]["metadata"]["name"] == "sb-0"
    told = sent[1][2]["status"]
    assert (told["phase"], told["verdict"], told["message"]) == ("Ended", "deleted", "enough")
    assert (told["endedAt"], told["endedIn"]) == ("2026-01-01T12:00:30Z", "2026-01-01T12:00Z")
    assert seen == []


async def test_the_records_of_a_burst_begin_when_its_claims_are_over() -> None:
    begun = asyncio.Event()

    async def first(request: web.Request) -> web.StreamResponse:
        begun.set()
        return await CREATED(request)

    async with writing(first, CREATED, CREATED) as (records, sent, _):
        for number in range(3):
            claim = Claim(f"sb-{number}", "alpha", at=1000.0)
            records.claim(f"{POD}{number}", claim, template=TEMPLATE, cold=False)
            await loop_turns()  # as each create has a turn of its own
            assert records.unwritten == number + 1
            assert sent == []
        await asyncio.wait_for(begun.wait(), 60)  # by itself
        await records.flush(timeout=60)
    assert sorted(body["metadata"]["name"] for _, _, body in sent) == ["sb-0", "sb-1", "sb-2"]


async def test_claims_without_a_pause_do_not_hold_the_first_record_back_for_ever() -> None:
    lull = Debouncer(quiet=60.0, longest=0.05)
    lull.claim()
    waiting = asyncio.create_task(lull.wait())
    async with asyncio.timeout(50):
        while not waiting.done():
            lull.claim()
            await asyncio.sleep(0.01)


async def test_of_two_ends_before_the_record_is_written_the_first_counts() -> None:
    async with writing(CREATED, CHANGED) as (records, sent, _):
        records.claim(POD, CLAIM, template=TEMPLATE, cold=False)
        records.end(POD, END, template=TEMPLATE, cold=False)
        records.end(POD, msgspec.structs.replace(END, verdict="oom"), template=TEMPLATE, cold=False)
        await records.flush(timeout=60)
    assert sent[1][2]["status"]["verdict"] == "deleted"


async def test_an_end_that_the_controller_was_first_to_tell_stays() -> None:
    async with writing(CREATED, TOO_LATE) as (records, _, _):
        records.claim(POD, CLAIM, template=TEMPLATE, cold=False)
        records.end(POD, END, template=TEMPLATE, cold=False)
        await records.flush(timeout=60)
        assert records.unwritten == 0


async def test_said_again_it_is_written_once() -> None:
    async with writing(CREATED) as (records, _, _):
        for _ in range(3):
            records.claim(POD, CLAIM, template=TEMPLATE, cold=False)
            await records.flush(timeout=60)
        assert records.unwritten == 0


async def test_a_cold_ones_own_resource_is_changed() -> None:
    async with writing(CHANGED, CHANGED) as (records, sent, _):
        records.claim(POD, CLAIM, template=TEMPLATE, cold=True)
        await records.flush(timeout=60)
        records.end(POD, END, template=TEMPLATE, cold=True)
        await records.flush(timeout=60)
    assert methods(sent) == [("PATCH", f"/{POD}"), ("PATCH", f"/{POD}/status")]
    owner = {"sandboxId": "sb-0", "tenant": "alpha", "labels": ["one"], "state": "Running"}
    assert sent[0][2] == {"spec": {**owner, "madeFor": None}}


WAITING = {"sandbox_id": "sb-0", "waiting_until": "2026-01-01T00:00:00Z"}


async def test_a_claim_is_written_into_what_was_promised() -> None:
    async with writing(CREATED, CHANGED) as (records, sent, _):
        await records.pending_creates.make(PENDING, timeout=60)
        records.claim(POD, CLAIM, template=TEMPLATE, cold=False, node="n1")
        await records.flush(timeout=60)
        assert "sb-0" not in records.pending_creates
    assert methods(sent) == [("POST", ""), ("PATCH", "/sb-0")]
    spec = sent[1][2]["spec"]
    assert (spec["podName"], spec["state"], spec["waitingUntil"]) == (POD, "Running", None)


async def test_what_another_gateway_promised_is_found_by_the_claims_conflict() -> None:
    there = found(resource("sb-0", pod=None, **WAITING))
    async with writing(CONFLICT, there, CHANGED) as (records, sent, _):
        records.claim(POD, CLAIM, template=TEMPLATE, cold=False)
        await records.flush(timeout=60)
    assert methods(sent) == [("POST", ""), ("GET", "/sb-0"), ("PATCH", "/sb-0")]


async def test_what_was_promised_and_is_of_another_pod_by_now_is_left_alone() -> None:
    refused = answered(422, {"reason": "Invalid", "message": "podName cannot change once it is set"})
    elsewhere = found(resource("sb-0", pod="i-another", sandbox_id="sb-0"))
    async with writing(refused, CONFLICT, elsewhere) as (records, sent, _):
        records.changed(resource("sb-0", pod=None, **WAITING))
        records.claim(POD, CLAIM, template=TEMPLATE, cold=False)
        await records.flush(timeout=60)
    assert methods(sent) == [("PATCH", "/sb-0"), ("POST", ""), ("GET", "/sb-0")]


async def test_what_is_written_about_one_sandbox_is_written_in_order() -> None:
    """A claim does not overtake its promise: it would not find what it is to be written into."""
    taken = asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        await taken.wait()
        return await CREATED(request)

    async with scripted() as (script, client):
        script.lists = [slow, CHANGED]
        records = Records(client, namespace="boxes", seen=lambda change: None)
        making = asyncio.create_task(records.pending_creates.make(PENDING, timeout=60))
        await script.asked.wait()
        records.claim(POD, CLAIM, template=TEMPLATE, cold=False)
        writing = asyncio.create_task(records.flush(timeout=60))
        await loop_turns()
        assert [request.method for request in script.requests] == ["POST"]
        taken.set()
        await asyncio.gather(making, writing)
        sent = [(request.method, request.path.removeprefix(COLLECTION)) for request in script.requests]
        assert sent == [("POST", ""), ("PATCH", "/sb-0")]
        await records.close(timeout=60.0)


async def test_the_end_of_a_sandbox_whose_instance_was_not_heard_of_is_written_into_its_record() -> None:
    async with writing(CHANGED) as (records, sent, _):
        records.changed(resource(POD, pod=None, sandbox_id="sb-0", state="Running"))
        records.pending_creates.end("sb-0", END)
        await records.close(timeout=60.0)
    assert methods(sent) == [("PATCH", f"/{POD}/status")]


async def test_an_end_in_a_record_that_no_sidecar_confirmed_is_waited_for() -> None:
    async with writing(CHANGED) as (records, sent, _):
        records.changed(resource(POD, pod=None, sandbox_id="sb-0", state="Running"))
        records.pending_creates.end("sb-0", END)
        await records.ends_written({"sb-0"}, timeout=60)
        assert methods(sent) == [("PATCH", f"/{POD}/status")]


async def test_a_cold_ones_promise_is_taken_away_and_that_is_no_end() -> None:
    over: list[str] = []
    async with scripted() as (script, client):
        script.lists = [CREATED, CHANGED, CHANGED]
        records = Records(
            client,
            namespace="boxes",
            seen=lambda change: None,
            pending_create_over=lambda sandbox_id, ended, request: over.append(sandbox_id),
        )
        await records.pending_creates.make(PENDING, timeout=60)
        records.claim(POD, CLAIM, template=TEMPLATE, cold=True)
        await records.close(timeout=60)
        sent = [(request.method, request.path.removeprefix(COLLECTION)) for request in script.requests]
        assert sent == [("POST", ""), ("PATCH", f"/{POD}"), ("DELETE", "/sb-0")]
    # As another gateway sees it: by the watch, or by a list that has the one and not the other.
    other = Records(
        client,
        namespace="boxes",
        seen=lambda change: None,
        pending_create_over=lambda sandbox_id, ended, request: over.append(sandbox_id),
    )
    waiting = resource("sb-0", pod=None, **WAITING)
    owned = resource(POD, pod=None, sandbox_id="sb-0", state="Running")
    other.changed(waiting)
    other.listing()
    other.replaced([owned])
    other.changed(waiting)
    other.deleted(waiting)
    assert over == []
    other.listing()
    other.replaced([waiting])
    other.deleted(waiting)
    assert over == ["sb-0"]


async def test_whether_it_was_cold_is_asked_when_nobody_knows() -> None:
    async with writing(found(resource(POD, pod=None)), CREATED) as (records, sent, _):
        records.claim(POD, CLAIM, template=TEMPLATE, cold=None)
        await records.flush(timeout=60)
    assert methods(sent) == [("GET", f"/{POD}"), ("PATCH", f"/{POD}")]


@pytest.mark.parametrize("reused", [False, True])
async def test_whether_its_pod_is_reused_is_asked_when_nobody_knows(reused: bool) -> None:
    annotations = marks(PoolReuse(policy="tenant")) if reused else {}
    pod = answered(200, {"metadata": {"name": POD, "annotations": annotations}})
    async with writing(MISSING, pod, CREATED) as (records, sent, _):
        records.claim(POD, CLAIM, template=TEMPLATE, cold=None)
        await records.flush(timeout=60)
    assert methods(sent) == [("GET", f"/{POD}"), ("GET", paths.pods("boxes", POD)), ("POST", "")]
    assert sent[2][2]["spec"].get("generation") == (CLAIM.generation if reused else None)


async def test_a_claim_by_whom_it_was_made_for_is_not_written() -> None:
    async with writing(CHANGED) as (records, sent, _):
        with records.making(POD, wanted="sb-0"):
            pass  # the API server has answered
        records.claim(POD, CLAIM, template=TEMPLATE, cold=True)
        assert records.unwritten == 0
        assert await records.resource_of("sb-0") == POD
        records.changed(resource(POD, pod=None, made_for="sb-0", state="Started"))
        records.end(POD, END, template=TEMPLATE, cold=True)
        await records.flush(timeout=60)
    assert methods(sent) == [("PATCH", f"/{POD}/status")]
    assert sent[0][2]["status"]["sandboxId"] == "sb-0"


async def test_a_claim_by_another_than_whom_it_was_made_for_is_written() -> None:
    async with writing(CHANGED) as (records, sent, _):
        records.changed(resource(POD, pod=None, made_for="sb-1", state="Started"))
        assert not records.confirmed(POD, "sb-0")
        records.claim(POD, CLAIM, template=TEMPLATE, cold=True)
        await records.flush(timeout=60)
    assert methods(sent) == [("PATCH", f"/{POD}")]
    assert (sent[0][2]["spec"]["sandboxId"], sent[0][2]["spec"]["madeFor"]) == ("sb-0", None)
