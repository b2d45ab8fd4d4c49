"""Code by SandboxFusion's run_code whose sandbox is lost, whose caller leaves, or that waits too long or is cut by a stop."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests import plain_http
from tests.e2e import processes
from tests.gateway.fusion_stack import KEY, _no_leaks, run, send, stack, workers
from tests.sidecar.processes import command_line, descendants
from tests.stack import Stack, private_stack
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real namespaces, mounts and cgroups"),
]

__all__ = ["_no_leaks", "stack"]


async def test_large_bodies_in_flight_are_bounded(stack: Stack) -> None:
    large = {"x": "x" * (29 << 20), "run_timeout": 60}
    async with _left_running(stack, 2, large):
        answer = send(stack, "true", **large)
        assert answer.status_code == 504
        assert "too large together" in answer.json()["detail"]
        assert send(stack, "true").status_code == 200
    assert send(stack, "true", **large).status_code == 200


async def test_code_whose_caller_leaves_is_killed(stack: Stack) -> None:
    async with _left_running(stack, 1, {"run_timeout": 60}):
        pass


@asynccontextmanager
async def _left_running(stack: Stack, count: int, fields: dict[str, Any]) -> AsyncIterator[None]:
    """Have requests run until the block ends; then their callers leave, and their code is gone."""
    url = f"{stack.url}/fusion/{KEY}/run_code"
    body = {"code": "sleep 50", "language": "bash", **fields}
    async with plain_http.async_client(timeout=60) as client:
        callers = [asyncio.create_task(client.post(url, json=body)) for _ in range(count)]
        await asyncio.to_thread(wait_until, lambda: _running(stack) == count)
        yield
        for caller in callers:
            caller.cancel()
        await asyncio.wait(callers)
    await asyncio.to_thread(wait_until, lambda: not _running(stack))


def test_code_of_a_lost_sandbox_runs_in_another(stack: Stack) -> None:
    run(stack, "true")
    with ThreadPoolExecutor(1) as callers:
        told: Future[dict[str, Any]] = callers.submit(run, stack, "echo begun; sleep 5002.5; echo done")
        lost = wait_until(lambda: _sleepers(stack, "5002.5"))
        for sidecar in processes.sidecars(stack):
            os.kill(sidecar, signal.SIGKILL)
        [sleep] = wait_until(lambda: _sleepers(stack, "5002.5", but=lost))
        os.kill(sleep, signal.SIGTERM)
        assert told.result()["run_result"]["stdout"] == "begun\ndone\n"


def test_a_client_with_patience_outlasts_three_lost_sandboxes(stack: Stack) -> None:
    run(stack, "true")
    lost: set[int] = set()
    with ThreadPoolExecutor(1) as callers:
        told = callers.submit(send, stack, "sleep 5002.75; echo done", query="?patience=100")
        for _ in range(3):
            [(sleep, owner)] = wait_until(lambda: _sleepers(stack, "5002.75", but=lost)).items()
            os.kill(owner, signal.SIGKILL)
            lost.add(sleep)
        [sleep] = wait_until(lambda: _sleepers(stack, "5002.75", but=lost))
        os.kill(sleep, signal.SIGTERM)
        answer = told.result()
    assert (answer.status_code, answer.json()["run_result"]["stdout"]) == (200, "done\n")


def _sleepers(stack: Stack, seconds: str, *, but: Collection[int] = ()) -> dict[int, int]:
    """The processes of code that sleep so long until a test ends them, with their sidecars; what is lost may end late."""
    return {
        pid: sidecar
        for sidecar in processes.sidecars(stack)
        for pid in descendants(sidecar) - set(but)
        if command_line(pid).startswith(f"sleep\0{seconds}\0".encode())
    }


def _running(stack: Stack) -> int:
    headers = {"Authorization": f"Bearer {KEY}"}
    count = 0
    for each in workers(stack):
        url = f"{stack.url}/api/v1/sandbox/{each['id']}/commands"
        listed = plain_http.get(url, headers=headers).json()["commands"]
        count += any(one["state"] == "running" for one in listed)
    return count


def test_what_waits_too_long_and_what_a_stop_cuts_is_a_504() -> None:
    options = ("--fusion", "host", "--fusion-sandboxes", "1", "--fusion-idle", "1", "--drain", "0")
    with private_stack(*options, env={"SANDLOT_API_KEYS": f"{KEY}:alpha"}) as stack:
        run(stack, "true")
        wait_until(lambda: not workers(stack))  # nobody used it
        with ThreadPoolExecutor(2) as callers:
            cut = callers.submit(send, stack, "sleep 60", run_timeout=60)
            wait_until(lambda: _running(stack))
            began = time.monotonic()
            short = {"compile_timeout": 0, "run_timeout": 0.1}
            patient = callers.submit(send, stack, "true", query="?patience=50", **short)
            late = send(stack, "true", **short)
            assert late.status_code == 504
            assert "busy" in late.json()["detail"]
            # verl would give up after 10.1 seconds, of which a loaded machine may take more than the gateway does.
            assert time.monotonic() - began < 30
            assert not patient.done()
            stack.terminate()
            assert [each.result().status_code for each in (cut, patient)] == [504, 504]
