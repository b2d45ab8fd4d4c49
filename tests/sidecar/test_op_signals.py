"""Signals to an op, and its end on request: all of its processes get them."""

from __future__ import annotations

import pytest

from tests.sidecar.calls import has_status, processes_like
from tests.sidecar.support import Sidecar
from tests.waiting import until

pytestmark = pytest.mark.root


async def at_least(box: Sidecar, pattern: str, number: int) -> bool:
    return await processes_like(box, pattern) >= number


async def none_like(box: Sidecar, pattern: str) -> bool:
    return await processes_like(box, pattern) == 0


async def test_signals_reach_the_tree(box: Sidecar) -> None:
    op = await box.op("sh -c 'sleep 44' & sleep 44; wait", id="sig", detach=True)
    await until(lambda: at_least(box, "sleep 44", 3))
    assert (await box.call("POST", "/v1/ops/sig/signal", json={"signal": "KILL"})).json() == {}
    document = await box.ended(op["op_id"])
    assert (document["verdict"], document["signal"]) == ("killed", 9)
    # The op ends with its own process, maybe before the others.
    await until(lambda: none_like(box, "sleep 44"))


async def test_a_signal_with_an_id_is_sent_once(box: Sidecar) -> None:
    traps = "trap 'echo one >> /tmp/got' USR1; trap 'echo two >> /tmp/got' USR2; touch /tmp/on"
    await box.op(f"{traps}; while :; do sleep 0.02; done", id="usr", detach=True)
    await until(lambda: has_status(box, "/v1/files/stat?path=/tmp/on", 200))

    async def send(signal: str, name: str) -> None:
        told = {"signal": signal, "tree": False, "id": name}
        assert (await box.call("POST", "/v1/ops/usr/signal", json=told)).status_code == 200

    async def got(text: str) -> None:
        async def is_there() -> bool:
            return (await box.exec("cat /tmp/got 2> /dev/null || true"))["stdout"] == text

        await until(is_there)

    await send("USR1", "a")
    await got("one\n")
    await send("USR1", "a")
    await send(
        "USR2", "b"
    )  # the shell handles the lower number first, so what it would have got is there by then
    await got("one\ntwo\n")
    await send("USR1", "c")
    await got("one\ntwo\none\n")
    ended = await box.call("DELETE", "/v1/ops/usr")
    assert ended.json()["verdict"] == "killed"
    assert (await box.call("POST", "/v1/ops/usr/signal", json={"signal": 15})).status_code == 409


async def test_a_signal_to_an_op_that_waits_for_its_turn_is_sent_when_it_starts(make) -> None:
    box = await make(claim={}, ops={"max_running": 1})
    await box.op("sleep 300", id="first", detach=True)
    await box.op("sleep 300", id="waits", detach=True)
    for _ in range(2):
        answer = await box.call("POST", "/v1/ops/waits/signal", json={"signal": "TERM", "id": "a"})
        assert (answer.status_code, answer.json()) == (200, {})
    assert (await box.call("GET", "/v1/ops/waits")).json()["state"] == "queued"
    await box.call("DELETE", "/v1/ops/first")
    document = await box.ended("waits")
    assert (document["verdict"], document["signal"], document["exit_code"]) == ("killed", 15, 143)
    late = await box.call("POST", "/v1/ops/waits/signal", json={"signal": "TERM"})
    assert (late.status_code, late.json()["error"]) == (409, "op_ended")


async def test_signals_to_a_waiting_op_keep_their_order_and_are_so_many_at_most(make) -> None:
    box = await make(claim={}, ops={"max_running": 1})
    await box.op("sleep 300", id="first", detach=True)
    await box.op("echo went on", id="waits", detach=True)

    async def send(signal: str) -> tuple[int, str | None]:
        answer = await box.call("POST", "/v1/ops/waits/signal", json={"signal": signal})
        return answer.status_code, answer.json().get("error")

    for signal in (*["CONT"] * 62, "STOP", "CONT"):  # in another order it would stay stopped
        assert await send(signal) == (200, None)
    assert await send("KILL") == (503, "busy")
    await box.call("DELETE", "/v1/ops/first")
    document = await box.ended("waits")
    assert (document["verdict"], document["exit_code"], document["stdout_bytes"]) == ("exited", 0, 8)


async def test_a_signal_to_an_op_that_never_runs_hits_nobody(make) -> None:
    box = await make(claim={}, ops={"max_running": 1})
    await box.op("sleep 300", id="first", detach=True)
    await box.op("sleep 300", id="deleted", detach=True)
    await box.op("true", id="fails", cwd="/not-there", detach=True)
    await box.op("sleep 0.2; echo whole", id="last", detach=True)
    for op_id in ("deleted", "fails"):
        answer = await box.call("POST", f"/v1/ops/{op_id}/signal", json={"signal": "KILL"})
        assert answer.status_code == 200
    deleted = (await box.call("DELETE", "/v1/ops/deleted")).json()
    assert (deleted["verdict"], deleted["signal"]) == ("killed", None)
    await box.call("DELETE", "/v1/ops/first")
    assert (await box.ended("fails"))["verdict"] == "start_failed"
    document = await box.ended("last")
    assert (document["verdict"], document["exit_code"], document["stdout_bytes"]) == ("exited", 0, 6)


async def test_delete_kills_the_whole_tree(box: Sidecar) -> None:
    await box.op("setsid sleep 43 & sleep 43", id="del", detach=True)
    answer = await box.call("DELETE", "/v1/ops/del")
    assert (answer.json()["verdict"], answer.json()["state"]) == ("killed", "ended")
    assert await processes_like(box, "sleep 43") == 0
    assert (await box.call("DELETE", "/v1/ops/del")).json()["verdict"] == "killed"
