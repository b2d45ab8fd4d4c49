"""How soon the next command may start: by what those before it used, not by how long they took."""

from __future__ import annotations

import asyncio
from functools import partial

from sandlot_sidecar.server.pace import LONGEST, SHORTEST, Pace

from tests.sidecar.support import Sidecar, payload
from tests.waiting import until


def after(*cpu: float) -> float:
    """What a pace that has seen these commands says."""
    pace = Pace()
    for seconds in cpu:
        pace.ended(seconds)
    return pace.seconds


def test_commands_that_sleep_hold_nobody_up() -> None:
    assert after() == SHORTEST
    assert after(*[0.001] * 100) == SHORTEST


def test_one_waits_as_long_as_others_needed() -> None:
    assert 0.05 < after(*[0.02] * 50) < 0.07
    assert after(*[0.02] * 50, *[0.001] * 50) == SHORTEST


def test_one_that_computes_for_long_is_not_waited_for() -> None:
    assert after(*[3600.0] * 100) == LONGEST
    assert after(3600.0) < LONGEST / 2


def test_a_crowd_that_sleeps_is_let_in_soon_after_others_have_computed() -> None:
    pace = Pace()
    for _ in range(100):
        pace.ended(1.0)
    waited = 0.0
    for _ in range(64):
        waited += pace.seconds
        pace.outlasted()
    assert waited < 2.0


async def running(box: Sidecar, number: int) -> bool:
    ops = (await box.call("GET", "/v1/ops")).json()["ops"]
    return sum(op["state"] == "running" for op in ops) == number


async def test_commands_that_sleep_all_start_though_none_of_them_has_ended(box: Sidecar) -> None:
    calls = [asyncio.create_task(box.exec(["sleep", "300"], op=f"s{number}")) for number in range(16)]
    try:
        await until(partial(running, box, 16))
    finally:
        for number in range(16):
            await box.call("DELETE", f"/v1/ops/s{number}")
        ended = await asyncio.gather(*calls)
    assert {answer["verdict"] for answer in ended} == {"killed"}


async def test_a_command_that_nobody_reads_does_not_stand_still_with_full_pipes(box: Sidecar) -> None:
    """It goes on only if its output is read before its end: it waits for a file that it makes behind it."""
    writes = "head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2; touch /tmp/written"
    command = f"({writes}) & while ! test -e /tmp/written; do sleep 0.01; done"
    answer = await box.exec(command, timeout=50)
    assert (answer["verdict"], answer["stdout_bytes"], answer["stderr_bytes"]) == (
        "exited",
        3000000,
        3000000,
    )


async def test_who_attaches_to_a_buffered_command_reads_it_as_it_runs(box: Sidecar) -> None:
    await box.exec("mkfifo /tmp/go")
    call = asyncio.create_task(box.exec("echo one; read x < /tmp/go; echo two", op="live"))
    await until(partial(running, box, 1))
    async with box.stream("GET", "/v1/ops/live/stream") as stream:
        parts = stream.aiter_bytes()
        seen = b""
        async with asyncio.timeout(20):
            while b"one\n" not in seen:
                seen += await anext(parts)
        assert seen[:1] == b"s", seen
        await box.exec("echo > /tmp/go")
        async for part in parts:
            seen += part
    assert b"two\n" in seen
    assert (await call)["stdout"] == "one\ntwo\n"


async def test_a_buffered_command_that_goes_on_has_a_pid(box: Sidecar) -> None:
    call = asyncio.create_task(box.exec(["sleep", "300"], op="long"))

    async def told() -> bool:
        answer = await box.call("GET", "/v1/ops/long")
        return answer.status_code == 200 and answer.json()["pid"] is not None

    await until(told)
    document = (await box.call("GET", "/v1/ops/long")).json()
    seen = await box.exec(f"cat /proc/{document['pid']}/cmdline | tr '\\0' ' '")
    assert seen["stdout"] == "sleep 300 "
    await box.call("DELETE", "/v1/ops/long")
    await call


async def test_a_quiet_command_with_a_terminal_has_its_output(box: Sidecar) -> None:
    body = {"command": "tty", "quiet": True, "pty": {"cols": 80, "rows": 24}}
    found = await box.frames("/v1/ops", method="POST", json=body)
    assert payload(found, "o").startswith(b"/dev/pts/"), found
