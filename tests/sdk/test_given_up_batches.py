"""Batches that are given up at their first error: each item ends what it has started, and begins nothing more."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from sandlot import Client, Sandbox
from sandlot._tasks_async import each

from tests.sdk.service.faults import Fault
from tests.sdk.service.server import Service
from tests.waiting import SECONDS, wait_until


def test_the_first_error_ends_what_a_synchronous_batch_has_started(service: Service) -> None:
    def work(box: Sandbox, item: int) -> None:
        if item:
            box.exec("sleep 60", op_id=f"long-{item}")
        wait_until(lambda: len([op for op in list(service.ops.values()) if op.process]) == 2)
        raise ValueError("the first")

    with Client(url=service.url, api_key=service.api_key) as client:
        begun = time.monotonic()
        with pytest.raises(ValueError, match="the first"):
            Sandbox.map(work, [1, 0, 2], client=client)
        assert time.monotonic() - begun < 50  # of 60
    assert sorted(service.ops) == ["long-1", "long-2"]
    assert all(op.document and op.document["verdict"] == "killed" for op in service.ops.values())
    assert {box["status"] for box in service.sandboxes.values()} == {"TERMINATED"}


def test_a_delete_that_has_begun_is_done_although_the_batch_is_given_up(service: Service) -> None:
    """The one of an item that was finished just before."""
    deleting = threading.Event()

    class Slow(Sandbox):
        def delete(self) -> None:
            deleting.set()
            busy = Fault(
                f"/sandbox/{self.id}", status=503, body={"error": "busy"}, headers={"Retry-After": "1"}
            )
            service.faults.append(busy)
            super().delete()

    def work(box: Sandbox, item: int) -> None:
        if item:
            assert deleting.wait(SECONDS)
            raise ValueError("the first")

    client = Client(url=service.url, api_key=service.api_key)
    with client, pytest.raises(ValueError, match="the first"):
        Slow.map(work, [0, 1], client=client)
    assert {box["status"] for box in service.sandboxes.values()} == {"TERMINATED"}


def test_a_cancelled_thread_sends_nothing_again(service: Service) -> None:
    """Also while it waits to send something again."""
    full = Fault("/exec", status=503, body={"error": "busy"}, headers={"Retry-After": "60"})
    service.faults.append(full)

    def work(box: Sandbox, item: int) -> None:
        if item:
            box.exec("true")
        wait_until(lambda: service.calls("/exec"))
        raise ValueError("the first")

    with Client(url=service.url, api_key=service.api_key) as client:
        with pytest.raises(ValueError, match="the first"):
            Sandbox.map(work, [1, 0], client=client)
        assert len(service.calls("/exec")) == 1


async def test_an_item_whose_function_is_cancelled_is_no_result() -> None:
    async def one(item: int) -> int:
        if item == 1:
            raise asyncio.CancelledError
        return item

    options = {"concurrency": 1, "progress": None}
    found = await each(one, [0, 1, 2], return_exceptions=True, **options)
    assert [type(result) for result in found] == [int, asyncio.CancelledError, int]
    with pytest.raises(asyncio.CancelledError):
        await each(one, [0, 1, 2], return_exceptions=False, **options)
