"""What is written to Sandbox resources when answers are lost, late or a refusal, and at the end."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from sandlot_gateway.backends.kubernetes.records import Records
from sandlot_gateway.backends.kubernetes.translate import safe_name
from sandlot_gateway.core.owners import Claim
from sandlot_kube import clock, ends
from sandlot_kube.ends import Ended
from sandlot_kube.objects import SandboxPhase, SandboxStatus

from tests.gateway.written_records import (
    CHANGED,
    CLAIM,
    CONFLICT,
    CREATED,
    END,
    MISSING,
    PENDING,
    POD,
    TEMPLATE,
    found,
    methods,
    resource,
    writing,
)
from tests.kube.scripted import Answer, failed, scripted


async def test_it_is_tried_until_the_server_takes_it() -> None:
    refusals = [failed(500, "InternalError"), failed(429, "TooManyRequests"), failed(403, "Forbidden")]
    async with writing(*refusals, CREATED) as (records, sent, _):
        records.claim(POD, CLAIM, template=TEMPLATE, cold=False)
        assert records.unwritten == 1
        await records.flush(timeout=60)
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
        await records.flush(timeout=60)
    assert methods(sent) == [("POST", ""), ("POST", ""), ("GET", "/sb-0"), ("PATCH", "/sb-0/status")]


async def page(request: web.Request) -> web.Response:
    """A proxy answers in place of the API server."""
    return web.Response(text="<html>Please log in</html>", content_type="text/html")


async def test_a_record_that_a_proxy_answered_is_written_again() -> None:
    there = found(resource("sb-0", pod=POD))
    async with writing(page, CONFLICT, page, CONFLICT, there, page, CHANGED) as (records, sent, _):
        records.claim(POD, CLAIM, template=TEMPLATE, cold=False)
        records.end(POD, END, template=TEMPLATE, cold=False)
        await records.flush(timeout=60)
        assert records.recorded.has_end(POD)
    post, get, end = ("POST", ""), ("GET", "/sb-0"), ("PATCH", "/sb-0/status")
    assert methods(sent) == [post, post, get, post, get, end, end]


async def test_what_is_to_be_known_before_a_record_is_asked_again_if_a_proxy_answered() -> None:
    async with writing(page, MISSING, page, MISSING, MISSING, CREATED) as (records, sent, _):
        records.claim(POD, CLAIM, template=TEMPLATE, cold=None)
        await records.flush(timeout=60)
        assert records.recorded.is_claimed(POD, 0)
    assert methods(sent)[-1] == ("POST", "")


async def test_a_pending_create_that_a_proxy_answered_is_written_again() -> None:
    waiting = found(resource("sb-0", pod=None, sandbox_id="sb-0", waiting_until="2026-01-01T00:00:00Z"))
    async with writing(page, CONFLICT, page, CONFLICT, waiting, CHANGED) as (records, sent, _):
        await records.pending_creates.make(PENDING, timeout=60)
        assert "sb-0" in records.pending_creates
    assert methods(sent)[-1] == ("PATCH", "/sb-0")


async def test_the_end_of_a_claim_that_was_made_elsewhere_leaves_that_one_alone() -> None:
    """The sandbox got another pod; the one that was given up must not end it."""
    elsewhere = found(resource("sb-0", pod="i-another"))
    async with writing(CONFLICT, elsewhere, CREATED, CHANGED) as (records, sent, _):
        records.claim(POD, CLAIM, template=TEMPLATE, cold=False)
        records.end(POD, END, template=TEMPLATE, cold=False)
        await records.flush(timeout=60)
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
        await records.flush(timeout=60)
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
        await records.flush(timeout=60)
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
        await records.flush(timeout=60)
        assert records.unwritten == 0
    assert refused == ["claim", "claim"]
    assert methods(sent) == [("POST", ""), ("POST", ""), ("POST", ""), ("PATCH", f"/{POD}/status")]
    assert sent[2][2]["metadata"]["name"] == POD
    assert "given up" in caplog.text


@pytest.mark.parametrize("answer", [CHANGED, MISSING])
async def test_an_unclaimed_cold_one_is_deleted(answer: Answer) -> None:
    async with writing(answer) as (records, sent, _):
        records.drop(POD, template=TEMPLATE)
        await records.flush(timeout=60)
    assert methods(sent) == [("DELETE", f"/{POD}")]


async def test_a_resource_that_was_deleted_needs_no_end() -> None:
    async with writing(CREATED, MISSING) as (records, _, _):
        records.claim(POD, CLAIM, template=TEMPLATE, cold=False)
        await records.flush(timeout=60)
        records.end(POD, END, template=TEMPLATE, cold=False)
        await records.flush(timeout=60)
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
        records.listing()
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
        await records.pending_creates.make(PENDING, timeout=60)
        records.claim(POD, CLAIM, template=TEMPLATE, cold=True)
        await records.close(timeout=60)
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
