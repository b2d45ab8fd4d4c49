"""Giving up: a cancelled command ends on the server too, and a cancelled create leaves no sandbox."""

from __future__ import annotations

import asyncio
import json

import pytest
from sandlot import AsyncClient, AsyncSandbox

from tests.sdk.service.faults import Fault
from tests.sdk.service.server import Service
from tests.waiting import until, wait_until


async def test_cancelling_an_exec_ends_the_command(service: Service) -> None:
    async with AsyncClient(url=service.url, api_key=service.api_key) as client:
        box = await AsyncSandbox.create(client=client)
        task = asyncio.create_task(box.exec("sleep 60", op_id="long"))
        await service.until_running("long")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(service.calls("/ops/long", "DELETE")) == 1
        assert (await (await box.attach("long")).wait()).verdict == "killed"


async def test_a_timeout_around_an_exec_ends_the_command(service: Service) -> None:
    async with AsyncClient(url=service.url, api_key=service.api_key) as client:
        box = await AsyncSandbox.create(client=client)

        async def run_until_it_runs() -> None:
            async with asyncio.timeout(60) as limit, asyncio.TaskGroup() as both:

                async def over_once_it_runs() -> None:
                    await service.until_running("long")
                    limit.reschedule(asyncio.get_running_loop().time())

                both.create_task(over_once_it_runs())
                await box.exec("sleep 60", op_id="long")

        with pytest.raises(TimeoutError):
            await run_until_it_runs()
        assert len(service.calls("/ops/long", "DELETE")) == 1


async def test_cancelling_a_stream_ends_the_command(service: Service) -> None:
    async with AsyncClient(url=service.url, api_key=service.api_key) as client:
        box = await AsyncSandbox.create(client=client)

        async def follow() -> None:
            async for _ in await box.exec("sleep 60", op_id="long", stream=True):
                pass

        task = asyncio.create_task(follow())
        await service.until_running("long")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(service.calls("/ops/long", "DELETE")) == 1


async def test_a_create_given_up_before_its_answer_leaves_no_sandbox(service: Service) -> None:
    service.faults.append(Fault("/sandbox", hold=True))
    async with AsyncClient(url=service.url, api_key=service.api_key) as client:
        task = asyncio.create_task(AsyncSandbox.create(client=client))
        await asyncio.to_thread(wait_until, lambda: service.calls("/sandbox", "POST"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    keys = {json.loads(seen.body)["idempotency_key"] for seen in service.calls("/sandbox", "POST")}
    assert len(keys) == 1
    assert [box["status"] for box in service.sandboxes.values()] == ["TERMINATED"]


async def test_a_cancelled_create_with_a_key_of_the_callers_deletes_nothing(service: Service) -> None:
    """The key may name a sandbox that was made before, and that somebody uses."""
    async with AsyncClient(url=service.url, api_key=service.api_key) as client:
        box = await AsyncSandbox.create(client=client, idempotency_key="mine")
        service.faults.append(Fault("/sandbox", hold=True))
        again = asyncio.create_task(AsyncSandbox.create(client=client, idempotency_key="mine"))
        await asyncio.to_thread(wait_until, lambda: len(service.calls("/sandbox", "POST")) == 2)
        again.cancel()
        with pytest.raises(asyncio.CancelledError):
            await again
        assert (await box.refresh()).status == "RUNNING"
        assert service.calls(f"/{box.id}", "DELETE") == []


async def test_what_is_undone_for_a_cancelled_create_is_not_sent_again_to_a_busy_server(
    service: Service,
) -> None:
    async with AsyncClient(url=service.url, api_key=service.api_key) as client:
        full = Fault("/sandbox", status=503, body={"error": "busy"}, headers={"Retry-After": "10"})
        service.faults.extend([full] * 50)
        creating = asyncio.create_task(AsyncSandbox.create(client=client))
        await until(lambda: service.calls("/sandbox", "POST"))
        creating.cancel()  # before it would be sent again
        with pytest.raises(asyncio.CancelledError):
            await creating
        sent = len(service.calls("/sandbox", "POST"))
        assert sent == 2  # the create, and one question what has become of it
        service.faults.clear()


async def test_a_stream_that_is_left_early_has_no_follower(service: Service) -> None:
    async with AsyncClient(url=service.url, api_key=service.api_key) as client:
        box = await AsyncSandbox.create(client=client)
        async for _ in await box.exec("echo one; sleep 60", op_id="long", stream=True):
            break
        [pool] = client.transport._pools.values()
        await until(lambda: len(pool.open) == len(pool.idle))
        await box._plane.kill("long")


async def test_input_of_a_stream_that_is_given_up_ends_its_command(service: Service) -> None:
    async with AsyncClient(url=service.url, api_key=service.api_key) as client:
        box = await AsyncSandbox.create(client=client)
        service.faults.append(Fault("/stdin", hold=True))
        starting = asyncio.create_task(box.exec("cat", stdin=b"x", op_id="long", stream=True))
        await asyncio.to_thread(wait_until, lambda: service.calls("/ops/long/stdin", "POST"))
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert len(service.calls("/ops/long", "DELETE")) == 1


async def test_a_write_after_a_cancelled_one_begins_where_the_server_is(service: Service) -> None:
    async with AsyncClient(url=service.url, api_key=service.api_key) as client:
        box = await AsyncSandbox.create(client=client)
        async with await box.start("cat", op_id="long") as process:
            await process.write(b"one ")
            service.faults.append(Fault("/stdin", hold=True))
            writing = asyncio.create_task(process.write(b"lost "))
            await asyncio.to_thread(wait_until, lambda: len(service.calls("/ops/long/stdin")) == 2)
            writing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await writing
            await process.write(b"two")
            await process.close_stdin()
            assert (await process.wait()).stdout == "one two"
        asked = [seen.path for seen in service.calls("/ops/long/stdin")]
        assert len(asked) == 5  # after the lost one it is asked where the input is


@pytest.mark.parametrize("stream", [False, True])
async def test_input_that_a_command_does_not_want_is_no_error(service: Service, stream: bool) -> None:
    async with AsyncClient(url=service.url, api_key=service.api_key) as client:
        box = await AsyncSandbox.create(client=client)
        refused = {"error": "conflict", "message": "the op has closed its input"}
        service.faults.append(Fault("/stdin", status=409, body=refused))
        if stream:
            events = [event async for event in await box.exec("echo hi", stdin=b"\xff", stream=True)]
            assert events[0].data == b"hi\n"  # type: ignore[union-attr]
        else:
            assert (await box.exec("echo hi", stdin=b"\xff")).stdout == "hi\n"
