"""A server, an executor or an init that is killed: what was written is kept, and each loss is told as one."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.sidecar.calls import has_running
from tests.sidecar.processes import command_line, descendants, gone, name_of
from tests.sidecar.support import Sidecar, parse_frames
from tests.stopped import stopped
from tests.waiting import until

pytestmark = pytest.mark.root


LAST_WORDS = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
os.write(1, b"a" * 100_000)  # from here on the pipe has room for a MiB
signal.sigwait({signal.SIGUSR1})
os.write(1, b"b" * 900_000)
signal.pause()
"""


async def test_the_last_words_of_a_lost_command_are_kept(box: Sidecar) -> None:
    """They were in the pipe when its init was lost; the server, which was busy, had no time to read them."""
    await box.call("PUT", "/v1/files?path=/words.py", content=LAST_WORDS.encode())
    await box.op(["python3", "/words.py"], id="speaks", detach=True)
    await until(lambda: wrote(box, 100_000))
    (speaker,) = [pid for pid in descendants(box.pid) if b"/words.py" in command_line(pid)]
    (init,) = inits(box)
    with stopped(box.pid):
        os.kill(speaker, signal.SIGUSR1)
        await until(lambda: written(speaker, 1_000_000))
        os.kill(init, signal.SIGKILL)
        await gone({speaker})
        await until(lambda: replaced(box, init))
    ended = await box.ended("speaks")
    assert (ended["verdict"], ended["stdout_bytes"]) == ("sandbox_broken", 1_000_000)


async def test_runners_that_end_with_the_init_are_no_failure_of_the_next_ones(make) -> None:
    """The executor tells of the new init before it answers why the old one's runners died."""
    box = await make(claim={})
    # None ends before all run, each by a runner of its own.
    waits = "touch /up-{}; until test -e /go; do sleep 0.05; done"
    at_once = [asyncio.create_task(box.exec(waits.format(number))) for number in range(6)]
    await until(lambda: are_up(box, 6))
    await box.call("PUT", "/v1/files?path=/go", content=b"")
    await asyncio.gather(*at_once)
    idle = {pid for pid in descendants(box.pid) if name_of(pid) == "sandlot-runner"}
    assert len(idle) >= 3, "as many as the failures after which a command is refused"
    (init,) = inits(box)
    executor = box.executor_pid()
    with stopped(executor):
        for pid in (init, *idle):
            os.kill(pid, signal.SIGKILL)
        await gone({init, *idle})
        served = asyncio.create_task(box.exec("echo served"))
        await until(lambda: is_queued(box))
    assert (await served)["stdout"] == "served\n"


async def are_up(box: Sidecar, count: int) -> bool:
    listing = (await box.call("GET", "/v1/files/list?path=/")).json()["entries"]
    return sum(entry["path"].startswith("/up-") for entry in listing) == count


async def is_queued(box: Sidecar) -> bool:
    return "ops_queued 1\n" in (await box.instance("GET", "/v1/metrics")).text


async def wrote(box: Sidecar, count: int) -> bool:
    return (await box.call("GET", "/v1/ops/speaks")).json()["stdout_bytes"] == count


async def written(pid: int, count: int) -> bool:
    return int(counters(pid)["wchar"]) >= count


def counters(pid: int) -> dict[str, str]:
    return dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())


def inits(box: Sidecar) -> set[int]:
    return {pid for pid in descendants(box.pid) if name_of(pid).endswith("init")}


async def replaced(box: Sidecar, init: int) -> bool:
    return bool(inits(box) - {init})


async def works(box: Sidecar) -> bool:
    return (await box.call("POST", "/v1/exec", json={"command": "true"})).status_code == 200


async def test_an_end_that_is_none_of_the_command_s_is_no_result_for_who_knows_no_verdicts(make) -> None:
    box = await make(claim={})
    first = asyncio.create_task(box.call("POST", "/v1/exec", json={"command": "echo out; sleep 300"}))
    await until(lambda: has_running(box, 1))
    (init,) = (pid for pid in box.tree() if name_of(pid).endswith("init"))
    os.kill(init, 9)
    broken = (await first).json()
    assert ((await first).status_code, broken["error"], broken["may_have_run"]) == (
        502,
        "sandbox_broken",
        True,
    )
    assert broken["message"]
    await until(lambda: works(box))  # a command in the moment of the change is lost, too
    second = asyncio.create_task(box.call("POST", "/v1/exec", json={"command": "sleep 300"}))
    await until(lambda: has_running(box, 1))
    await box.instance("POST", "/v1/end", json={"verdict": "deadline", "message": "its time is over"})
    ended = (await second).json()
    assert ((await second).status_code, ended["error"], ended["verdict"]) == (410, "ended", "deadline")
    assert ended["message"] == "its time is over"


async def test_a_killed_server_finds_its_claim_and_says_what_was_lost(make) -> None:
    box = await make(claim={"env": {"KEPT": "yes"}})
    await box.exec("true", op="finished")
    await box.op("echo side >> /tmp/x; sleep 600", id="running", detach=True)
    await box.kill()
    await box.start()
    state = (await box.call("GET", "/v1/state")).json()
    assert (state["phase"], state["sandbox_id"]) == ("claimed", "sb-test")
    lost = (await box.call("GET", "/v1/ops/running")).json()
    assert (lost["state"], lost["verdict"]) == ("ended", "sidecar_lost")
    retried = await box.exec("echo side >> /tmp/x; sleep 600", op="running")
    assert retried["verdict"] == "sidecar_lost"
    finished = await box.call(
        "POST", "/v1/exec", json={"command": "true"}, headers={"X-Sandlot-Op": "finished"}
    )
    assert finished.status_code == 410
    assert (await box.exec("echo $KEPT"))["stdout"] == "yes\n"
    other = await box.instance("POST", "/v1/claim", json=box.claim_body(sandbox_id="sb-thief"))
    assert other.status_code == 409


async def test_a_lost_executor_ends_the_sandbox_and_is_not_the_code_s_fault(make) -> None:
    box = await make(claim={})
    async with box.stream("POST", "/v1/ops", json={"command": "echo up; sleep 600"}) as answer:
        frames = answer.aiter_raw()
        received = b""
        while b"up\n" not in received:
            received += await anext(frames)
        os.kill(box.executor_pid(), 9)
        received += b"".join([part async for part in frames])
    assert json.loads(parse_frames(received)[-1][1])["verdict"] == "sandbox_broken"
    event = await box.webhooks.wait("ended")
    assert event["verdict"] == "sandbox_lost"
    assert await box.wait_exit() == 0


async def test_a_lost_executor_is_not_the_end_of_the_main_command(make) -> None:
    """That command dies with it, and its end would be the sandbox's, by the code's doing."""
    box = await make(claim={"start_command": "sleep 600", "meta": {"main": True}})
    await box.exec("true")
    os.kill(box.executor_pid(), 9)
    assert (await box.webhooks.wait("ended"))["verdict"] == "sandbox_lost"
    assert await box.wait_exit() == 0


async def test_an_init_that_dies_again_and_again_is_given_up(make) -> None:
    """Linux lets no code kill it, so whoever does it is not in the sandbox."""
    box = await make(claim={})
    killed: set[int] = set()

    async def ends() -> bool:
        found = {pid for pid in box.tree() - killed if name_of(pid).endswith("init")}
        for pid in found:
            with suppress(ProcessLookupError):  # the sandbox has just been given up
                os.kill(pid, signal.SIGKILL)
        killed.update(found)
        return any(event["event"] == "ended" for event in box.webhooks.events)

    await until(ends)  # by so many within some seconds: on a busy machine it takes more of them
    assert len(killed) >= 6
    assert (await box.webhooks.wait("ended"))["verdict"] == "sandbox_lost"
    assert await box.wait_exit() == 0
