"""Answers to writes that come after the watch has shown that the resource was deleted: they do not bring it back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest
from aiohttp import web
from sandlot_gateway.backends.kubernetes.records import Records
from sandlot_kube.objects import Metadata, Sandbox

from tests.gateway.written_records import (
    CHANGED,
    CLAIM,
    CREATED,
    END,
    MISSING,
    PENDING,
    POD,
    TEMPLATE,
    TOO_LATE,
    ended,
    found,
    resource,
    writing,
)
from tests.kube.scripted import Answer

RECORD = resource("sb-0", pod=POD, uid="uid-1", sandbox_id="sb-0", tenant="alpha", state="Running")
PROMISE = resource(
    "sb-0", pod=None, uid="uid-1", sandbox_id="sb-0", waiting_until="2026-01-01T00:00:00Z", state="Pending"
)


class Held:
    """An answer that waits until the watch has shown what happens meanwhile."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._asked = asyncio.Event()
        self._go = asyncio.Event()

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        self._asked.set()
        await self._go.wait()
        return await self._answer(request)

    async def after(self, happens: Callable[[], None]) -> None:
        """Let it happen while the request is on its way."""
        await asyncio.wait_for(self._asked.wait(), 60)
        happens()
        self._go.set()


def relisted(records: Records, *there: Sandbox) -> None:
    records.listing()
    records.replaced([*there])


def come_and_gone(records: Records, sandbox: Sandbox) -> None:
    records.changed(sandbox)
    records.deleted(sandbox)


async def test_a_claim_record_that_was_deleted_before_its_create_was_answered_is_gone() -> None:
    held = Held(found(RECORD))
    async with writing(held) as (records, _, seen):
        records.claim(POD, CLAIM, template=TEMPLATE, cold=False)
        flushed = asyncio.create_task(records.flush(timeout=60))
        await held.after(lambda: come_and_gone(records, RECORD))
        await flushed
        assert not records.recorded.exists(POD)
        assert [(change.owner, change.deleted) for change in seen] == [("sb-0", False), ("sb-0", True)]


@pytest.mark.parametrize("by", ["watch", "list"])
@pytest.mark.parametrize("answer", [found(RECORD), MISSING], ids=["written", "missing"])
async def test_a_record_that_was_deleted_before_its_end_was_answered_is_gone(answer: Answer, by: str) -> None:
    held = Held(answer)
    async with writing(held) as (records, _, _):
        records.changed(RECORD)
        records.end(POD, END, template=TEMPLATE, cold=False)
        flushed = asyncio.create_task(records.flush(timeout=60))
        await held.after(lambda: records.deleted(RECORD) if by == "watch" else relisted(records))
        await flushed
        assert not records.recorded.exists(POD)


async def test_the_end_of_a_record_that_was_deleted_before_does_not_bring_it_back() -> None:
    held = Held(found(RECORD))
    async with writing(held, MISSING) as (records, _, _):
        records.claim(POD, CLAIM, template=TEMPLATE, cold=False)
        records.end(POD, END, template=TEMPLATE, cold=False)
        flushed = asyncio.create_task(records.flush(timeout=60))
        await held.after(lambda: come_and_gone(records, RECORD))
        await flushed
        assert not records.recorded.exists(POD)


async def test_a_cold_starts_sandbox_that_was_deleted_before_its_create_was_answered_is_gone() -> None:
    made = resource(POD, pod=None, made_for="sb-0", uid="uid-1", state="Started")
    async with writing() as (records, _, _):
        with records.making(POD, wanted="sb-0"):
            come_and_gone(records, made)
        assert not records.recorded.exists(POD)


async def test_a_pending_create_that_was_deleted_before_its_create_was_answered_is_gone() -> None:
    held = Held(CREATED)
    async with writing(held) as (records, _, _):
        making = asyncio.create_task(records.pending_creates.make(PENDING, timeout=60))
        await held.after(lambda: come_and_gone(records, PROMISE))
        await making
        assert "sb-0" not in records.pending_creates


@pytest.mark.parametrize("by", ["watch", "list"])
async def test_the_late_deletion_of_an_earlier_pending_create_of_the_name_leaves_the_new_one(by: str) -> None:
    earlier = msgspec.structs.replace(PROMISE, metadata=Metadata(name="sb-0", uid="uid-0"))
    async with writing(found(PROMISE)) as (records, _, _):
        records.changed(earlier)
        records.listing()
        await records.pending_creates.make(PENDING, timeout=60)
        if by == "watch":
            records.deleted(earlier)
        else:
            records.replaced([])
        assert "sb-0" in records.pending_creates
        records.deleted(PROMISE)
        assert "sb-0" not in records.pending_creates


async def test_what_the_watch_still_shows_of_an_earlier_pending_create_of_the_name_ends_no_new_one() -> None:
    earlier = msgspec.structs.replace(PROMISE, metadata=Metadata(name="sb-0", uid="uid-0"))
    async with writing(found(PROMISE)) as (records, _, _):
        await records.pending_creates.make(PENDING, timeout=60)
        records.changed(earlier)
        records.deleted(earlier)
        assert "sb-0" in records.pending_creates
        records.changed(PROMISE)
        records.deleted(PROMISE)
        assert "sb-0" not in records.pending_creates


async def test_a_pending_create_that_was_made_anew_while_nothing_was_watched_is_gone_once_deleted() -> None:
    earlier = msgspec.structs.replace(PROMISE, metadata=Metadata(name="sb-0", uid="uid-0"))
    async with writing() as (records, _, _):
        records.changed(earlier)
        relisted(records, PROMISE)
        records.deleted(PROMISE)
        assert "sb-0" not in records.pending_creates


async def test_the_deletion_of_an_earlier_resource_of_the_name_leaves_the_created_one() -> None:
    held = Held(found(RECORD))
    earlier = resource("sb-0", pod="i-another", uid="uid-0", sandbox_id="sb-0", state="Running")
    async with writing(held) as (records, _, _):
        records.claim(POD, CLAIM, template=TEMPLATE, cold=False)
        flushed = asyncio.create_task(records.flush(timeout=60))
        await held.after(lambda: come_and_gone(records, earlier))
        await flushed
        assert records.recorded.is_claimed(POD, 0)


async def test_a_record_of_unknown_uid_that_was_deleted_before_its_end_was_answered_is_gone() -> None:
    """No answer has told its uid, and no list does."""
    held = Held(found(RECORD))
    async with writing(CREATED, held) as (records, _, _):
        records.claim(POD, CLAIM, template=TEMPLATE, cold=False)
        await records.flush(timeout=60)
        records.end(POD, END, template=TEMPLATE, cold=False)
        flushed = asyncio.create_task(records.flush(timeout=60))
        await held.after(lambda: relisted(records))
        await flushed
        assert not records.recorded.exists(POD)


async def test_a_cold_start_outlives_the_deletion_of_an_earlier_sandbox_of_its_name() -> None:
    async with writing() as (records, _, _):
        with records.making(POD, wanted="sb-0") as made:
            records.deleted(resource(POD, pod=None, uid="uid-0", state="Started"))
            made.answered(b'{"metadata": {"uid": "uid-1"}}')
        assert records.recorded.exists(POD)


async def test_the_late_deletion_of_an_earlier_resource_of_the_name_leaves_the_created_one() -> None:
    earlier = resource("sb-0", pod="i-another", uid="uid-0", sandbox_id="sb-0", state="Running")
    async with writing(found(RECORD)) as (records, _, seen):
        records.claim(POD, CLAIM, template=TEMPLATE, cold=False)
        await records.flush(timeout=60)
        records.deleted(earlier)
        assert records.recorded.is_claimed(POD, 0)
        assert seen == []


@pytest.mark.parametrize("before", [None, resource(POD, pod=None, uid="uid-1", state="Started")])
async def test_an_end_that_the_watch_has_shown_before_the_claim_was_answered_stays(
    before: Sandbox | None,
) -> None:
    """Of a create, and of a change of a cold start's Sandbox."""
    after = RECORD if before is None else resource(POD, pod=None, uid="uid-1", sandbox_id="sb-0")
    held = Held(found(after))
    async with writing(held) as (records, _, _):
        if before is not None:
            records.changed(before)
        records.claim(POD, CLAIM, template=TEMPLATE, cold=before is not None)
        flushed = asyncio.create_task(records.flush(timeout=60))
        await held.after(lambda: records.changed(ended(after)))
        await flushed
        assert records.recorded.has_end(POD)
        assert records.recorded.is_claimed(POD, 0)


async def test_an_end_that_the_watch_has_shown_before_an_own_end_was_refused_stays() -> None:
    """Here it lacks the owner, which is to be added."""
    held = Held(TOO_LATE)
    cold = resource(POD, pod=None, made_for="sb-0", uid="uid-1", state="Started")
    async with writing(held, CHANGED) as (records, sent, _):
        records.changed(cold)
        assert records.confirmed(POD, "sb-0")
        records.end(POD, END, template=TEMPLATE, cold=True)
        flushed = asyncio.create_task(records.flush(timeout=60))
        await held.after(lambda: records.changed(ended(cold)))
        await flushed
        records.name_owner(POD, CLAIM, template=TEMPLATE)
        await records.flush(timeout=60)
        assert [body.get("spec", {}).get("sandboxId") for _, _, body in sent] == [None, "sb-0"]
