"""The gateway dies at once: sandboxes and running commands go on, and a command with an id has run once."""

from __future__ import annotations

import asyncio
import threading

import pytest
from sandlot import AsyncClient, AsyncSandbox, CellResult, Client, Pools, Sandbox

from tests import plain_http
from tests.stack import Stack
from tests.waiting import SECONDS, wait_until


@pytest.fixture
def stack(empty_stack: Stack) -> Stack:
    return empty_stack


def wait_for_line(box: Sandbox, path: str) -> None:
    """Returns once the file has content; waits inside the sandbox, so that nothing is polled from here."""
    done = box.exec(f"until [ -s {path} ]; do sleep 0.02; done", timeout=SECONDS)
    assert done.exit_code == 0, done


def wait_until_ready(pools: Pools, name: str, *, size: int) -> None:
    wait_until(lambda: any(pool.name == name and pool.ready >= size for pool in pools.list()))


def test_a_running_command_is_found_again_and_ran_once(stack: Stack, client: Client) -> None:
    box = Sandbox.create(client=client)
    results = []
    command = "echo ran >> /tmp/effects; until [ -e /tmp/go ]; do sleep 0.02; done; echo finished; exit 7"
    caller = threading.Thread(
        target=lambda: results.append(box.exec(command, timeout=SECONDS, op_id="the-op"))
    )
    caller.start()
    try:
        wait_for_line(box, "/tmp/effects")
        stack.kill()
        stack.start()
        box.exec("touch /tmp/go", timeout=SECONDS)
    finally:
        caller.join(timeout=SECONDS)
    assert [(result.stdout, result.exit_code, result.verdict) for result in results] == [
        ("finished\n", 7, "exited")
    ]
    assert box.exec("cat /tmp/effects").stdout == "ran\n"
    again = box.exec(command, timeout=SECONDS, op_id="the-op")
    assert (again.stdout, again.exit_code) == ("finished\n", 7)
    assert box.exec("cat /tmp/effects").stdout == "ran\n"
    box.delete()


async def test_many_counters_through_a_kill(stack: Stack) -> None:
    """Forty commands are under way when the gateway dies; each side effect happened exactly once."""
    async with AsyncClient(url=stack.url, api_key=stack.api_key) as client:
        box = await AsyncSandbox.create(client=client)
        calls = [
            asyncio.create_task(
                box.exec(
                    f"echo {number} >> /tmp/count; sleep 0.5; echo {number}",
                    timeout=SECONDS,
                    op_id=f"op-{number}",
                )
            )
            for number in range(40)
        ]
        await box.exec("until [ -s /tmp/count ]; do sleep 0.01; done", timeout=SECONDS)
        await asyncio.to_thread(stack.kill)
        await asyncio.to_thread(stack.start)
        results = await asyncio.gather(*calls)
        assert [result.stdout for result in results] == [f"{number}\n" for number in range(40)]
        lines = (await box.exec("sort -n /tmp/count")).stdout.split()
        assert lines == [str(number) for number in range(40)]
        await box.delete()


def test_everything_is_known_again(stack: Stack, client: Client) -> None:
    box = Sandbox.create(
        client=client, labels=["a", "b"], env={"K": "v"}, secrets={"S": "hidden"}, name="kept"
    )
    ended = Sandbox.create(client=client, labels=["gone"])
    ended.delete()
    stack.kill()
    stack.start()
    found = Sandbox.list(client=client, labels=["a", "b"])
    assert [info.id for info in found] == [box.id]
    assert found[0].name == "kept"
    assert box.exec("echo $K $S").stdout == "v hidden\n"
    document = plain_http.get(
        f"{stack.url}/api/v1/sandbox/{box.id}",
        headers={"Authorization": f"Bearer {stack.api_key}"},
        timeout=SECONDS,
    ).json()
    assert "hidden" not in str(document)
    gone = Sandbox.list(client=client, labels=["gone"], active=None)
    assert [(info.id, info.verdict) for info in gone] == [(ended.id, "deleted")]
    box.delete()


def test_the_idempotency_key_outlives_the_gateway(stack: Stack, client: Client) -> None:
    first = Sandbox.create(client=client, idempotency_key="one")
    stack.kill()
    stack.start()
    second = Sandbox.create(client=client, idempotency_key="one")
    assert second.id == first.id
    first.delete()


def test_a_pool_is_kept_over_a_restart(stack: Stack, client: Client) -> None:
    pools = Pools(client=client)
    pools.set("kept", image="host", size=2)
    wait_until_ready(pools, "kept", size=2)
    stack.kill()
    stack.start()
    wait_until_ready(pools, "kept", size=2)
    box = Sandbox.create(client=client, pool="kept")
    assert box.info.pool_hit
    box.delete()
    pools.delete("kept")


def test_a_cell_of_a_python_context_goes_on(stack: Stack, client: Client) -> None:
    box = Sandbox.create(client=client)
    context = box.python()
    context.run("import os, time\nruns = 0")
    results: list[CellResult] = []
    printed = threading.Event()
    code = (
        "runs += 1\nprint('begun', flush=True)\nwhile not os.path.exists('/tmp/go'): time.sleep(0.02)\nruns"
    )
    caller = threading.Thread(
        target=lambda: results.append(context.run(code, on_stdout=lambda _: printed.set()))
    )
    caller.start()
    try:
        assert printed.wait(SECONDS)
        stack.kill()
        stack.start()
        box.exec("touch /tmp/go", timeout=SECONDS)
    finally:
        caller.join(timeout=SECONDS)
    assert [(result.text, result.stdout) for result in results] == [("1", "begun\n")]
    assert context.run("runs").text == "1"
    context.close()
    box.delete()
