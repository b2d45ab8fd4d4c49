"""Giving up: a cancelled command ends on the server too, and a cancelled create leaves no sandbox."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from sandlot import AsyncClient, AsyncSandbox, Client, ConnectionFailed, Sandbox
from sandlot._tasks_async import each

from tests.sdk.service.faults import Fault
from tests.sdk.service.server import Service
from tests.waiting import until, wait_until

SYNC = """
from sandlot import Sandbox
with Sandbox.create() as box:
    box.exec("echo started; sleep 60", op_id="long")
"""

ASYNC = """
import asyncio
from sandlot import AsyncSandbox
async def main():
    async with await AsyncSandbox.create() as box:
        await box.exec("echo started; sleep 60", op_id="long")
asyncio.run(main())
"""

MAP_EXECS = """
from sandlot import Sandbox
with Sandbox.create() as box:
    box.map_execs(["sleep 60"] * 5, concurrency=3)
"""

MAP = """
from sandlot import Sandbox
Sandbox.map(lambda box, _: box.exec("sleep 60"), range(5), concurrency=3)
"""

MAP_OF_MAPS = """
from sandlot import Sandbox
Sandbox.map(lambda box, n: box.map_execs(["sleep 60"] * n), [1, 2])
"""

MAP_OF_STREAMS = """
from sandlot import Sandbox
def work(box, _):
    for event in box.exec("sleep 60", stream=True):
        pass
Sandbox.map(work, range(3))
"""

MAP_OF_CODE = """
import sandlot._tasks_sync, time
from sandlot import Sandbox
sandlot._tasks_sync.GIVE_UP = 3.0
def work(box, n):
    box.exec("sleep 60") if n else time.sleep(60)
Sandbox.map(work, [0, 1, 1, 1])
"""

CLEAN = """
import asyncio
from sandlot import AsyncSandbox
async def main():
    box = await AsyncSandbox.create()
    print((await box.exec("echo fine")).stdout, end="")
asyncio.run(main())
asyncio.run(main())
"""


def environment(service: Service) -> dict[str, str]:
    return {**os.environ, "SANDLOT_URL": service.url, "SANDLOT_API_KEY": service.api_key}


async def until_running(service: Service, op_id: str) -> None:
    await asyncio.to_thread(wait_until, lambda: op_id in service.ops and service.ops[op_id].process)


async def test_cancelling_an_exec_ends_the_command(service: Service) -> None:
    async with AsyncClient(url=service.url, api_key=service.api_key) as client:
        box = await AsyncSandbox.create(client=client)
        task = asyncio.create_task(box.exec("sleep 60", op_id="long"))
        await until_running(service, "long")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(service.calls("/ops/long", "DELETE")) == 1
        assert (await (await box.attach("long")).wait()).verdict == "killed"


async def test_a_timeout_around_an_exec_ends_the_command(service: Service) -> None:
    async with AsyncClient(url=service.url, api_key=service.api_key) as client:
        box = await AsyncSandbox.create(client=client)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await box.exec("sleep 60", op_id="long")
        assert len(service.calls("/ops/long", "DELETE")) == 1


async def test_cancelling_a_stream_ends_the_command(service: Service) -> None:
    async with AsyncClient(url=service.url, api_key=service.api_key) as client:
        box = await AsyncSandbox.create(client=client)

        async def follow() -> None:
            async for _ in await box.exec("sleep 60", op_id="long", stream=True):
                pass

        task = asyncio.create_task(follow())
        await until_running(service, "long")
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


@pytest.mark.parametrize("script", [SYNC, ASYNC], ids=["sync", "async"])
def test_control_c_ends_the_command_and_deletes_the_sandbox(service: Service, script: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", script], env=environment(service), stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: "long" in service.ops and service.ops["long"].process, seconds=20)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=20)
    assert "KeyboardInterrupt" in error.splitlines()[-1]
    assert len(service.calls("/ops/long", "DELETE")) == 1
    assert [box["status"] for box in service.sandboxes.values()] == ["TERMINATED"]


@pytest.mark.parametrize(
    "script",
    [MAP_EXECS, MAP, MAP_OF_MAPS, MAP_OF_STREAMS, MAP_OF_CODE],
    ids=["execs", "map", "maps", "streams", "code"],
)
def test_control_c_ends_what_a_synchronous_batch_has_started(service: Service, script: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", script], env=environment(service), stderr=subprocess.PIPE, text=True
    )
    try:
        wait_until(lambda: len([op for op in service.ops.values() if op.process]) == 3)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=20)
    finally:
        process.kill()
        process.wait()
    assert "KeyboardInterrupt" in error.splitlines()[-1]
    assert len(service.ops) == 3, "another command was begun"
    wait_until(lambda: all(op.document is not None for op in service.ops.values()))
    assert {op.document["verdict"] for op in service.ops.values() if op.document} == {"killed"}
    left = [box for box in service.sandboxes.values() if box["status"] != "TERMINATED"]
    assert len(left) == (1 if script is MAP_OF_CODE else 0)  # nothing can end the code of a thread


def test_the_first_error_ends_what_a_synchronous_batch_has_started(service: Service) -> None:
    def work(box: Sandbox, item: int) -> None:
        if item:
            box.exec("sleep 60", op_id=f"long-{item}")
        wait_until(lambda: len([op for op in service.ops.values() if op.process]) == 2)
        raise ValueError("the first")

    with Client(url=service.url, api_key=service.api_key) as client:
        begun = time.monotonic()
        with pytest.raises(ValueError, match="the first"):
            Sandbox.map(work, [1, 0, 2], client=client)
        assert time.monotonic() - begun < 30
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
            assert deleting.wait(30)
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


def test_the_shared_client_is_closed_with_its_event_loop(service: Service) -> None:
    run = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", CLEAN],
        env=environment(service),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (run.stdout, run.stderr, run.returncode) == ("fine\nfine\n", "", 0)
    wait_until(lambda: service.open_now == 0)


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
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):  # before it would be sent again
                await AsyncSandbox.create(client=client)
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


async def test_a_closed_client_says_so_at_once(service: Service) -> None:
    client = AsyncClient(url=service.url, api_key=service.api_key)
    box = await AsyncSandbox.create(client=client)
    running = asyncio.create_task(box.exec("sleep 60", op_id="long"))
    await until_running(service, "long")
    await client.aclose()
    async with asyncio.timeout(10):
        with pytest.raises(ConnectionFailed, match="this client is closed"):
            await running
        with pytest.raises(ConnectionFailed, match="this client is closed"):
            await box.refresh()


async def test_a_client_of_another_loop_says_so(service: Service) -> None:
    client = AsyncClient(url=service.url, api_key=service.api_key)
    await AsyncSandbox.list(client=client)
    with pytest.raises(RuntimeError, match="another event loop"):
        await asyncio.to_thread(lambda: asyncio.run(AsyncSandbox.list(client=client)))
    await client.aclose()


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
