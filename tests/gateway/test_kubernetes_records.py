"""What is written to Sandbox resources, request by request, when answers are lost, late or a refusal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from aiohttp import web
from sandlot_contract.template import Template
from sandlot_gateway.backends.kubernetes.known import Known
from sandlot_gateway.backends.kubernetes.lull import Lull
from sandlot_gateway.backends.kubernetes.records import Records
from sandlot_gateway.backends.kubernetes.translate import safe_name, to_kube
from sandlot_gateway.core.owners import Claim, Promise
from sandlot_kube import clock, ends
from sandlot_kube.ends import Ended
from sandlot_kube.objects import Metadata, Sandbox, SandboxPhase, SandboxSpec, SandboxStatus
from sandlot_kube.template import Template as KubeTemplate

from tests.kube.scripted import Answer, answered, failed, scripted
from tests.waiting import loop_turns

POD = "i-0123456789abcdef"
TEMPLATE = Template("python:3.12", memory=256 << 20)
CLAIM = Claim("sb-0", "alpha", at=1000.0, labels=("one",))
END = Ended("deleted", "2026-01-01T12:00:30Z", message="enough")
COLLECTION = "/apis/sandlot.dev/v1alpha1/namespaces/boxes/sandboxes"


@asynccontextmanager
async def writing(
    *answers: Answer, refused: Callable[[str], None] = lambda what: None
) -> AsyncIterator[tuple[Records, list[tuple[str, str, Any]], list[Known]]]:
    """Records before a server with these answers; what it was sent, and what the records told."""
    sent: list[tuple[str, str, Any]] = []
    seen: list[Known] = []
    async with scripted() as (script, client):

        def kept(answer: Answer) -> Answer:
            async def keep(request: web.Request) -> web.StreamResponse:
                body = await request.read()
                sent.append((request.method, request.path, json.loads(body) if body else None))
                return await answer(request)

            return keep

        script.lists = [kept(answer) for answer in answers]
        records = Records(
            client,
            namespace="boxes",
            seen=seen.append,
            refused=refused,
            shortest_wait=0.01,
            longest_wait=0.02,
        )
        yield records, sent, seen
        await records.close(timeout=5.0)
        assert not script.lists, "not all answers were asked for"


def resource(name: str, *, pod: str | None, **spec: Any) -> Sandbox:
    return Sandbox(
        metadata=Metadata(name=name), spec=SandboxSpec(template=KubeTemplate("a"), pod_name=pod, **spec)
    )


def found(sandbox: Sandbox) -> Answer:
    return answered(200, msgspec.to_builtins(sandbox))


def methods(sent: list[tuple[str, str, Any]]) -> list[tuple[str, str]]:
    return [(method, path.removeprefix(COLLECTION)) for method, path, _ in sent]


CREATED = answered(201, {})
CHANGED = answered(200, {})
CONFLICT = failed(409, "AlreadyExists")
MISSING = failed(404, "NotFound")
TOO_LATE = answered(422, {"reason": "Invalid", "message": "status: an end stays as it was first told"})


async def test_a_warm_claim_is_one_create_and_its_end_one_change() -> None:
    async with writing(CREATED, CHANGED) as (records, sent, seen):
        records.claim(POD, CLAIM, template=TEMPLATE, cold=False, node="n1")
        await records.flush(timeout=10)
        records.end(POD, END, template=TEMPLATE, cold=False)
        await records.flush(timeout=10)
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
        await asyncio.wait_for(begun.wait(), 10)  # by itself
        await records.flush(timeout=10)
    assert sorted(body["metadata"]["name"] for _, _, body in sent) == ["sb-0", "sb-1", "sb-2"]


async def test_claims_without_a_pause_do_not_hold_the_first_record_back_for_ever() -> None:
    lull = Lull(quiet=5.0, longest=0.05)
    lull.claim()
    waiting = asyncio.create_task(lull.wait())
    async with asyncio.timeout(4):
        while not waiting.done():
            lull.claim()
            await asyncio.sleep(0.01)


async def test_of_two_ends_before_the_record_is_written_the_first_counts() -> None:
    async with writing(CREATED, CHANGED) as (records, sent, _):
        records.claim(POD, CLAIM, template=TEMPLATE, cold=False)
        records.end(POD, END, template=TEMPLATE, cold=False)
        records.end(POD, msgspec.structs.replace(END, verdict="oom"), template=TEMPLATE, cold=False)
        await records.flush(timeout=10)
    assert sent[1][2]["status"]["verdict"] == "deleted"


async def test_an_end_that_the_controller_was_first_to_tell_stays() -> None:
    async with writing(CREATED, TOO_LATE) as (records, _, _):
        records.claim(POD, CLAIM, template=TEMPLATE, cold=False)
        records.end(POD, END, template=TEMPLATE, cold=False)
        await records.flush(timeout=10)
        assert records.unwritten == 0


async def test_said_again_it_is_written_once() -> None:
    async with writing(CREATED) as (records, _, _):
        for _ in range(3):
            records.claim(POD, CLAIM, template=TEMPLATE, cold=False)
            await records.flush(timeout=10)
        assert records.unwritten == 0


async def test_a_cold_ones_own_resource_is_changed() -> None:
    async with writing(CHANGED, CHANGED) as (records, sent, _):
        records.claim(POD, CLAIM, template=TEMPLATE, cold=True)
        await records.flush(timeout=10)
        records.end(POD, END, template=TEMPLATE, cold=True)
        await records.flush(timeout=10)
    assert methods(sent) == [("PATCH", f"/{POD}"), ("PATCH", f"/{POD}/status")]
    owner = {"sandboxId": "sb-0", "tenant": "alpha", "labels": ["one"], "state": "Running"}
    assert sent[0][2] == {"spec": {**owner, "madeFor": None}}


PROMISE = Promise("sb-0", "alpha", TEMPLATE, labels=("one",), request={})
WAITING = {"sandbox_id": "sb-0", "waiting_until": "2026-01-01T00:00:00Z"}


async def test_a_claim_is_written_into_what_was_promised() -> None:
    async with writing(CREATED, CHANGED) as (records, sent, _):
        await records.promises.make(PROMISE, timeout=10)
        records.claim(POD, CLAIM, template=TEMPLATE, cold=False, node="n1")
        await records.flush(timeout=10)
        assert "sb-0" not in records.promises
    assert methods(sent) == [("POST", ""), ("PATCH", "/sb-0")]
    spec = sent[1][2]["spec"]
    assert (spec["podName"], spec["state"], spec["waitingUntil"]) == (POD, "Running", None)


async def test_what_another_gateway_promised_is_found_by_the_claims_conflict() -> None:
    there = found(resource("sb-0", pod=None, **WAITING))
    async with writing(CONFLICT, there, CHANGED) as (records, sent, _):
        records.claim(POD, CLAIM, template=TEMPLATE, cold=False)
        await records.flush(timeout=10)
    assert methods(sent) == [("POST", ""), ("GET", "/sb-0"), ("PATCH", "/sb-0")]


async def test_what_was_promised_and_is_of_another_pod_by_now_is_left_alone() -> None:
    refused = answered(422, {"reason": "Invalid", "message": "podName cannot change once it is set"})
    elsewhere = found(resource("sb-0", pod="i-another", sandbox_id="sb-0"))
    async with writing(refused, CONFLICT, elsewhere) as (records, sent, _):
        records.changed(resource("sb-0", pod=None, **WAITING))
        records.claim(POD, CLAIM, template=TEMPLATE, cold=False)
        await records.flush(timeout=10)
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
        making = asyncio.create_task(records.promises.make(PROMISE, timeout=10))
        await script.asked.wait()
        records.claim(POD, CLAIM, template=TEMPLATE, cold=False)
        writing = asyncio.create_task(records.flush(timeout=10))
        await loop_turns()
        assert [request.method for request in script.requests] == ["POST"]
        taken.set()
        await asyncio.gather(making, writing)
        sent = [(request.method, request.path.removeprefix(COLLECTION)) for request in script.requests]
        assert sent == [("POST", ""), ("PATCH", "/sb-0")]
        await records.close(timeout=5.0)


async def test_the_end_of_a_sandbox_whose_instance_was_not_heard_of_is_written_into_its_record() -> None:
    async with writing(CHANGED) as (records, sent, _):
        records.changed(resource(POD, pod=None, sandbox_id="sb-0", state="Running"))
        records.promises.end("sb-0", END)
        await records.close(timeout=5.0)
    assert methods(sent) == [("PATCH", f"/{POD}/status")]


async def test_a_cold_ones_promise_is_taken_away_and_that_is_no_end() -> None:
    over: list[str] = []
    async with scripted() as (script, client):
        script.lists = [CREATED, CHANGED, CHANGED]
        records = Records(
            client,
            namespace="boxes",
            seen=lambda change: None,
            promise_over=lambda sandbox_id, ended, request: over.append(sandbox_id),
        )
        await records.promises.make(PROMISE, timeout=10)
        records.claim(POD, CLAIM, template=TEMPLATE, cold=True)
        await records.close(timeout=10)
        sent = [(request.method, request.path.removeprefix(COLLECTION)) for request in script.requests]
        assert sent == [("POST", ""), ("PATCH", f"/{POD}"), ("DELETE", "/sb-0")]
    # As another gateway sees it: by the watch, or by a list that has the one and not the other.
    other = Records(
        client,
        namespace="boxes",
        seen=lambda change: None,
        promise_over=lambda sandbox_id, ended, request: over.append(sandbox_id),
    )
    waiting = resource("sb-0", pod=None, **WAITING)
    owned = resource(POD, pod=None, sandbox_id="sb-0", state="Running")
    other.changed(waiting)
    other.replaced([owned])
    other.changed(waiting)
    other.deleted(waiting)
    assert over == []
    other.replaced([waiting])
    other.deleted(waiting)
    assert over == ["sb-0"]


@pytest.mark.parametrize(("there", "writes"), [(True, ("PATCH", f"/{POD}")), (False, ("POST", ""))])
async def test_whether_it_was_cold_is_asked_when_nobody_knows(there: bool, writes: tuple[str, str]) -> None:
    asked = found(resource(POD, pod=None)) if there else MISSING
    async with writing(asked, CREATED) as (records, sent, _):
        records.claim(POD, CLAIM, template=TEMPLATE, cold=None)
        await records.flush(timeout=10)
    assert methods(sent) == [("GET", f"/{POD}"), writes]


async def test_a_claim_by_whom_it_was_made_for_is_not_written() -> None:
    async with writing(CHANGED) as (records, sent, _):
        records.made(POD, wanted="sb-0")
        records.claim(POD, CLAIM, template=TEMPLATE, cold=True)
        assert records.unwritten == 0
        assert await records.resource_of("sb-0") == POD
        records.changed(resource(POD, pod=None, made_for="sb-0", state="Started"))
        records.end(POD, END, template=TEMPLATE, cold=True)
        await records.flush(timeout=10)
    assert methods(sent) == [("PATCH", f"/{POD}/status")]
    assert sent[0][2]["status"]["sandboxId"] == "sb-0"


async def test_a_claim_by_another_than_whom_it_was_made_for_is_written() -> None:
    async with writing(CHANGED) as (records, sent, _):
        records.changed(resource(POD, pod=None, made_for="sb-1", state="Started"))
        assert not records.confirmed(POD, "sb-0")
        records.claim(POD, CLAIM, template=TEMPLATE, cold=True)
        await records.flush(timeout=10)
    assert methods(sent) == [("PATCH", f"/{POD}")]
    assert (sent[0][2]["spec"]["sandboxId"], sent[0][2]["spec"]["madeFor"]) == ("sb-0", None)


async def test_it_is_tried_until_the_server_takes_it() -> None:
    refusals = [failed(500, "InternalError"), failed(429, "TooManyRequests"), failed(403, "Forbidden")]
    async with writing(*refusals, CREATED) as (records, sent, _):
        records.claim(POD, CLAIM, template=TEMPLATE, cold=False)
        assert records.unwritten == 1
        await records.flush(timeout=10)
        assert records.unwritten == 0
    assert len(sent) == 4


async def test_a_create_whose_answer_was_lost_is_found_and_ended() -> None:
    async def lost(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with writing(lost, CONFLICT, found(resource("sb-0", pod=POD)), CHANGED) as (records, sent, _):
        records.claim(POD, CLAIM, template=TEMPLATE, cold=False)
        records.end(POD, END, template=TEMPLATE, cold=False)
        await records.flush(timeout=10)
    assert methods(sent) == [("POST", ""), ("POST", ""), ("GET", "/sb-0"), ("PATCH", "/sb-0/status")]


async def test_the_end_of_a_claim_that_was_made_elsewhere_leaves_that_one_alone() -> None:
    """The sandbox got another pod; the one that was given up must not end it."""
    elsewhere = found(resource("sb-0", pod="i-another"))
    async with writing(CONFLICT, elsewhere, CREATED, CHANGED) as (records, sent, _):
        records.claim(POD, CLAIM, template=TEMPLATE, cold=False)
        records.end(POD, END, template=TEMPLATE, cold=False)
        await records.flush(timeout=10)
    assert methods(sent) == [("POST", ""), ("GET", "/sb-0"), ("POST", ""), ("PATCH", f"/{POD}/status")]
    body = sent[2][2]
    assert body["metadata"]["name"] == POD
    assert (body["spec"]["podName"], "sandboxId" in body["spec"]) == (POD, False)
    assert sent[3][2]["status"]["verdict"] == "deleted"


INVALID = failed(422, "Invalid")
ASKED = Claim("sb-0", "alpha", at=1000.0, labels=("one",), request={"name": "mine"})


async def test_what_a_user_sent_costs_no_record(caplog: pytest.LogCaptureFixture) -> None:
    """The API server refuses a large request or a label of it for ever; whose sandbox it is can be kept."""
    async with writing(INVALID, CREATED) as (records, sent, _):
        records.claim(POD, ASKED, template=TEMPLATE, cold=False)
        await records.flush(timeout=10)
        assert records.unwritten == 0
    assert methods(sent) == [("POST", ""), ("POST", "")]
    assert sent[0][2]["spec"]["labels"] == ["one"]
    assert "annotations" in sent[0][2]["metadata"]
    spec = sent[1][2]["spec"]
    assert (spec["podName"], spec["sandboxId"], spec["tenant"], spec["labels"]) == (POD, "sb-0", "alpha", [])
    assert "annotations" not in sent[1][2]["metadata"]
    assert "sb-0" in caplog.text
    assert "written without its labels and request" in caplog.text


async def test_an_end_that_is_refused_is_written_without_its_message() -> None:
    async with writing(CREATED, INVALID, CHANGED) as (records, sent, _):
        records.claim(POD, CLAIM, template=TEMPLATE, cold=False)
        records.end(POD, END, template=TEMPLATE, cold=False)
        await records.flush(timeout=10)
        assert records.recorded.has_end(POD)
    assert [body["status"]["message"] for _, _, body in sent[1:]] == ["enough", None]
    assert sent[2][2]["status"]["verdict"] == "deleted"


async def test_what_can_never_be_written_is_counted_and_the_end_is_written_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without a Sandbox that has ended, the controller leaves the pod."""
    refused: list[str] = []
    async with writing(INVALID, INVALID, CREATED, CHANGED, refused=refused.append) as (records, sent, _):
        records.claim(POD, ASKED, template=TEMPLATE, cold=False)
        records.end(POD, END, template=TEMPLATE, cold=False)
        await records.flush(timeout=10)
        assert records.unwritten == 0
    assert refused == ["claim", "claim"]
    assert methods(sent) == [("POST", ""), ("POST", ""), ("POST", ""), ("PATCH", f"/{POD}/status")]
    assert sent[2][2]["metadata"]["name"] == POD
    assert "given up" in caplog.text


@pytest.mark.parametrize("answer", [CHANGED, MISSING])
async def test_an_unclaimed_cold_one_is_deleted(answer: Answer) -> None:
    async with writing(answer) as (records, sent, _):
        records.drop(POD, template=TEMPLATE)
        await records.flush(timeout=10)
    assert methods(sent) == [("DELETE", f"/{POD}")]


async def test_a_resource_that_was_deleted_needs_no_end() -> None:
    async with writing(CREATED, MISSING) as (records, _, _):
        records.claim(POD, CLAIM, template=TEMPLATE, cold=False)
        await records.flush(timeout=10)
        records.end(POD, END, template=TEMPLATE, cold=False)
        await records.flush(timeout=10)
        assert records.unwritten == 0


async def test_what_others_wrote_is_told_and_not_written_again() -> None:
    async with writing() as (records, sent, seen):
        records.replaced([resource("sb-0", pod=POD, sandbox_id="sb-0")])
        records.claim(POD, CLAIM, template=TEMPLATE, cold=False)
        over = resource("sb-0", pod=POD, sandbox_id="sb-0")
        over.status = SandboxStatus(
            phase=SandboxPhase.ENDED, verdict="oom", message="killed", exit_code=137, ended_at=END.at
        )
        records.changed(over)
        records.changed(over)
        records.end(POD, END, template=TEMPLATE, cold=False)
        records.replaced([])
        assert records.recorded.was_deleted(POD)
        assert len(seen) == 2  # an ended one that is taken away has not ended once more
        records.replaced([resource("sb-1", pod="i-1", sandbox_id="sb-1")])
        records.deleted(resource("sb-1", pod="i-1"))
    assert sent == []
    assert [(change.pod, change.ended and change.ended.verdict) for change in seen] == [
        (POD, None),
        (POD, "oom"),
        ("i-1", None),
        ("i-1", "deleted"),
    ]
    assert seen[1].ended == Ended("oom", END.at, message="killed", exit_code=137)


async def test_closing_waits_for_the_promise_that_the_last_record_takes_away() -> None:
    deleted = False

    async def deletes(request: web.Request) -> web.StreamResponse:
        nonlocal deleted
        await asyncio.sleep(0.2)  # longer than a close that does not wait for it
        deleted = request.method == "DELETE"
        return await CHANGED(request)

    async with scripted() as (script, client):
        script.lists = [CREATED, CHANGED, deletes]
        records = Records(client, namespace="boxes", seen=lambda change: None)
        await records.promises.make(PROMISE, timeout=10)
        records.claim(POD, CLAIM, template=TEMPLATE, cold=True)
        await records.close(timeout=10)
        assert deleted


async def test_closing_waits_no_longer_than_it_may() -> None:
    async def never(request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    loop = asyncio.get_running_loop()
    async with scripted() as (script, client):
        script.lists = [never]
        records = Records(client, namespace="boxes", seen=lambda change: None)
        records.claim(POD, CLAIM, template=TEMPLATE, cold=False)
        await script.asked.wait()
        began = loop.time()
        await records.close(timeout=0.2)
        assert loop.time() - began < 30
        assert records.unwritten == 0


@pytest.mark.parametrize(
    ("sandbox_id", "same"),
    [("sb-0123456789abcdef0123", True), ("Upper", False), ("a b", False), ("", False), ("x" * 64, False)],
)
def test_a_name_is_the_id_where_it_can_be(sandbox_id: str, same: bool) -> None:
    name = safe_name(sandbox_id)
    assert (name == sandbox_id) is same
    assert safe_name(name) == name


def test_an_ends_message_fits_the_schema() -> None:
    told = ends.status(Ended("oom", "2026-01-31T12:00:00Z", message="x" * 10_000, exit_code=137))
    assert (len(told["message"]), told["exitCode"]) == (4096, 137)
    assert told["endedAt"].endswith("Z")
    assert ends.period_end(told["endedIn"]) == clock.seconds("2026-01-31T12:01:00Z")
