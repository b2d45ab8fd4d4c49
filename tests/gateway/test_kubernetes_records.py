"""What is written to Sandbox resources, request by request, when answers are lost, late or a refusal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from aiohttp import web
from sandlot_gateway.backends.base import Claim, Template
from sandlot_gateway.backends.kubernetes.records import Known, Records, ending, safe_name
from sandlot_gateway.backends.kubernetes.translate import to_kube
from sandlot_kube.objects import Ended, Metadata, Sandbox, SandboxSpec, SandboxStatus
from sandlot_kube.template import Template as KubeTemplate

from tests.kube.scripted import Answer, answered, failed, scripted

POD = "i-0123456789abcdef"
TEMPLATE = Template("python:3.12", memory=256 << 20)
CLAIM = Claim("sb-0", "alpha", at=1000.0, labels=("one",))
END = Ended(verdict="deleted", message="enough")
COLLECTION = "/apis/sandlot.dev/v1alpha1/namespaces/boxes/sandboxes"


@asynccontextmanager
async def writing(*answers: Answer) -> AsyncIterator[tuple[Records, list[tuple[str, str, Any]], list[Known]]]:
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
        records = Records(client, namespace="boxes", seen=seen.append, shortest_wait=0.01, longest_wait=0.02)
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


async def test_a_warm_claim_is_one_create_and_its_end_one_change() -> None:
    async with writing(CREATED, CHANGED) as (records, sent, seen):
        records.claim(POD, CLAIM, template=TEMPLATE, cold=False)
        await records.flush(timeout=10)
        records.end(POD, END, template=TEMPLATE, cold=False)
        await records.flush(timeout=10)
    assert methods(sent) == [("POST", ""), ("PATCH", "/sb-0")]
    assert sent[0][2]["spec"] == {
        "template": msgspec.to_builtins(to_kube(TEMPLATE)),
        "podName": POD,
        "sandboxId": "sb-0",
        "tenant": "alpha",
        "labels": ["one"],
    }
    assert sent[0][2]["metadata"]["name"] == "sb-0"
    assert sent[1][2] == {"spec": {"ended": {"verdict": "deleted", "message": "enough"}}}
    assert seen == []


async def test_an_end_before_the_record_is_written_is_one_create() -> None:
    async with writing(CREATED) as (records, sent, _):
        records.claim(POD, CLAIM, template=TEMPLATE, cold=False)
        records.end(POD, END, template=TEMPLATE, cold=False)
        records.end(POD, Ended(verdict="oom"), template=TEMPLATE, cold=False)
        await records.flush(timeout=10)
    assert sent[0][2]["spec"]["ended"]["verdict"] == "deleted"


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
    assert methods(sent) == [("PATCH", f"/{POD}"), ("PATCH", f"/{POD}")]
    assert sent[0][2] == {"spec": {"sandboxId": "sb-0", "tenant": "alpha", "labels": ["one"]}}


@pytest.mark.parametrize(("there", "writes"), [(True, ("PATCH", f"/{POD}")), (False, ("POST", ""))])
async def test_whether_it_was_cold_is_asked_when_nobody_knows(there: bool, writes: tuple[str, str]) -> None:
    asked = found(resource(POD, pod=None)) if there else MISSING
    async with writing(asked, CREATED) as (records, sent, _):
        records.claim(POD, CLAIM, template=TEMPLATE, cold=None)
        await records.flush(timeout=10)
    assert methods(sent) == [("GET", f"/{POD}"), writes]


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
    assert methods(sent) == [("POST", ""), ("POST", ""), ("GET", "/sb-0"), ("PATCH", "/sb-0")]


async def test_the_end_of_a_claim_that_was_made_elsewhere_leaves_that_one_alone() -> None:
    """The sandbox got another pod; the one that was given up must not end it."""
    elsewhere = found(resource("sb-0", pod="i-another"))
    async with writing(CONFLICT, elsewhere, CREATED) as (records, sent, _):
        records.claim(POD, CLAIM, template=TEMPLATE, cold=False)
        records.end(POD, END, template=TEMPLATE, cold=False)
        await records.flush(timeout=10)
    assert methods(sent) == [("POST", ""), ("GET", "/sb-0"), ("POST", "")]
    body = sent[2][2]
    assert body["metadata"]["name"] == POD
    assert (body["spec"]["podName"], "sandboxId" in body["spec"]) == (POD, False)
    assert body["spec"]["ended"]["verdict"] == "deleted"


async def test_what_can_never_be_written_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    async with writing(failed(422, "Invalid")) as (records, _, _):
        records.claim(POD, CLAIM, template=TEMPLATE, cold=False)
        await records.flush(timeout=10)
        assert records.unwritten == 0
    assert "cannot be written" in caplog.text


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
        over.status = SandboxStatus(phase="Ended", verdict="oom", message="killed", exit_code=137)
        records.changed(over)
        records.changed(over)
        records.end(POD, END, template=TEMPLATE, cold=False)
        records.replaced([])
        assert records.of_pod(POD) is None
        assert len(seen) == 2  # an ended one that is taken away has not ended once more
        records.replaced([resource("sb-1", pod="i-1", sandbox_id="sb-1")])
        records.deleted(resource("sb-1", pod="i-1"))
    assert sent == []
    assert [(known.pod, known.claimed, known.ended) for known in seen] == [
        (POD, True, None),
        (POD, True, Ended(verdict="oom", message="killed", exit_code=137)),
        ("i-1", True, None),
        ("i-1", True, Ended(verdict="deleted", message="its Sandbox was deleted")),
    ]


async def test_closing_waits_no_longer_than_it_may() -> None:
    async def never(request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    loop = asyncio.get_running_loop()
    async with scripted() as (script, client):
        script.lists = [never]
        records = Records(client, namespace="boxes", seen=lambda known: None)
        records.claim(POD, CLAIM, template=TEMPLATE, cold=False)
        await script.asked.wait()
        began = loop.time()
        await records.close(timeout=0.2)
        assert loop.time() - began < 5
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
    end = ending("oom", message="x" * 10_000, exit_code=137)
    assert (len(end.message or ""), end.exit_code) == (4096, 137)
    assert end.at is not None
    assert end.at.endswith("Z")
