"""A note whose storing failed is taken back: what a caller was told does not exist must not come back by the watch."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from aiohttp import web
from sandlot_contract.ids import SandboxId
from sandlot_contract.names import ANNOTATION_NOTE, LABEL_PORT
from sandlot_gateway.backends.kubernetes.notes import KubernetesNotes
from sandlot_gateway.backends.kubernetes.records import Records
from sandlot_gateway.core.backend import BackendError, Unavailable
from sandlot_kube.client import KubeClient
from sandlot_kube.objects import Metadata, Sandbox

from tests.gateway.written_records import COLLECTION, POD, resource
from tests.kube.scripted import Answer, answered, failed, listed, scripted
from tests.waiting import SECONDS

PORT = 7001
DOCUMENT = {"port": 80}
DONE = answered(200, {})
AWAY = failed(503, "ServiceUnavailable")
OWN = resource("sb-0", pod=POD, sandbox_id="sb-0", tenant="alpha", state="Running")
OTHER = resource("sb-1", pod=POD, sandbox_id="sb-1", tenant="alpha", state="Running")


def with_notes(*keys: str) -> Sandbox:
    """The sandbox as the watch shows it with these notes."""
    annotations = {ANNOTATION_NOTE + key: json.dumps(DOCUMENT) for key in keys}
    return msgspec.structs.replace(OWN, metadata=Metadata(name="sb-0", annotations=annotations))


def found(*sandboxes: Sandbox) -> Answer:
    return listed(*(msgspec.to_builtins(sandbox) for sandbox in sandboxes), version=1)


def patch(key: str, text: str | None) -> tuple[str, str, Any]:
    metadata = {
        "annotations": {ANNOTATION_NOTE + key: text},
        "labels": {f"{LABEL_PORT}{PORT}": None if text is None else ""},
    }
    return "PATCH", f"{COLLECTION}/sb-0", {"metadata": metadata}


class Noting:
    """Notes before a server with these answers; what it was sent, and what the notes told."""

    def __init__(self, notes: KubernetesNotes, *, client: KubeClient) -> None:
        self.notes = notes
        self.client = client
        self.sent: list[tuple[str, str, Any]] = []
        self.told: list[dict[str, Any]] = []
        notes.subscribe(lambda _, found: self.told.append(found))

    async def put(self, key: str) -> bool:
        return await self.notes.put(SandboxId("sb-0"), key, DOCUMENT, port=PORT)


@asynccontextmanager
async def noting(*answers: Answer) -> AsyncIterator[Noting]:
    async with scripted() as (script, client):

        async def resource_of(sandbox_id: str) -> str:
            return sandbox_id

        notes = KubernetesNotes(client, namespace="boxes", resource_of=resource_of, retry_after=0.01)
        made = Noting(notes, client=client)

        def kept(answer: Answer) -> Answer:
            async def keep(request: web.Request) -> web.StreamResponse:
                body = await request.read()
                made.sent.append((request.method, request.path, json.loads(body) if body else None))
                return await answer(request)

            return keep

        script.lists = [kept(answer) for answer in answers]
        yield made
        await made.notes.close(timeout=SECONDS)
        assert not script.lists, "not all answers were asked for"


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([DONE, AWAY], id="list-fails"),
        pytest.param([AWAY], id="unknown-outcome"),
        pytest.param([DONE, found(OWN, OTHER), AWAY], id="taken-port"),
    ],
)
@pytest.mark.parametrize("outage", [[], [AWAY, AWAY]], ids=["at-once", "after-outage"])
async def test_a_note_whose_put_failed_is_taken_back(answers: list[Answer], outage: list[Answer]) -> None:
    async with noting(*answers, *outage, DONE) as noted:
        with pytest.raises(Unavailable):
            await noted.put("one")
    assert noted.sent[0] == patch("one", json.dumps(DOCUMENT, separators=(",", ":")))
    taken_back = noted.sent[len(answers) :]
    assert taken_back == [patch("one", None)] * (len(outage) + 1)


async def test_a_note_that_was_refused_is_not_taken_back() -> None:
    async with noting(failed(422, "Invalid")) as noted:
        with pytest.raises(BackendError):
            await noted.put("one")
    assert len(noted.sent) == 1


async def test_a_note_that_is_written_after_its_removal_is_taken_back_again_and_not_told() -> None:
    async with noting(AWAY, DONE, DONE) as noted:
        with pytest.raises(Unavailable):
            await noted.put("one")
        await noted.notes.close(timeout=SECONDS)
        noted.notes.changed(with_notes("one", "two"))
        assert noted.told == [{"two": DOCUMENT}]
    assert noted.sent[1:] == [patch("one", None)] * 2


async def test_a_port_is_not_free_for_its_sandbox_until_the_note_is_taken_back() -> None:
    """The removal of a note removes the port's label, which another one of the sandbox would need."""
    go = asyncio.Event()

    async def held(request: web.Request) -> web.StreamResponse:
        await go.wait()
        return await DONE(request)

    async with noting(DONE, AWAY, held, DONE, found(OWN)) as noted:
        with pytest.raises(Unavailable):
            await noted.put("one")
        assert await noted.put("two") is False
        go.set()
        await noted.notes.close(timeout=SECONDS)
        assert await noted.put("three") is True
    assert [sent[0] for sent in noted.sent] == ["PATCH", "GET", "PATCH", "PATCH", "GET"]


@pytest.mark.parametrize("by", ["watch", "list"])
async def test_the_notes_of_a_sandbox_that_is_deleted_are_told_no_more(by: str) -> None:
    async with noting() as one:
        records = Records(one.client, namespace="boxes", seen=lambda change: None, notes=one.notes)
        records.changed(with_notes("port"))
        assert one.told == [{"port": DOCUMENT}]
        if by == "watch":
            records.deleted(with_notes("port"))
        else:
            records.listing()
            records.replaced([])
        one.notes.tell_again()  # the tenants' keys have changed
        assert len(one.told) == 1
