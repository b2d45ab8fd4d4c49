"""What becomes of an op whose client goes away."""

from __future__ import annotations

import json

import pytest

from tests.sidecar.calls import has_status, processes_like
from tests.sidecar.support import Sidecar, parse_frames, payload
from tests.waiting import until

pytestmark = pytest.mark.root


async def ended_with(box: Sidecar, verdict: str) -> bool:
    """The last op: by the list, since a question for the op itself counts as somebody who attends it."""
    return (await box.call("GET", "/v1/ops")).json()["ops"][-1]["verdict"] == verdict


async def test_client_gone_without_an_id_kills_at_once(box: Sidecar) -> None:
    _, writer = await box.raw()
    body = json.dumps({"command": "echo $$ > /tmp/pid; sleep 555"}).encode()
    writer.write(
        b"POST /v1/exec HTTP/1.1\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s"
        % (box.token.encode(), len(body), body)
    )
    await until(lambda: has_status(box, "/v1/files/stat?path=/tmp/pid", 200))
    writer.close()
    await until(lambda: ended_with(box, "client_gone"))
    assert await processes_like(box, "sleep 555") == 0


@pytest.mark.slow
async def test_client_gone_with_an_id_gets_a_grace(make) -> None:
    box = await make(claim={}, ops={"reattach_grace": 15})

    async def begin_and_leave(name: str) -> None:
        body = {"command": "echo on; read line < /tmp/go; echo off", "id": name}
        async with box.stream("POST", "/v1/ops", json=body) as answer:
            async for _ in answer.aiter_raw():
                break

    await box.exec("mkfifo /tmp/go")
    await begin_and_leave("comes-back")
    async with box.stream("GET", "/v1/ops/comes-back/stream?offset=0") as answer:
        await begin_and_leave("stays-away")
        await until(
            lambda: ended_with(box, "client_gone"), pause=0.2
        )  # its grace began after the other one's
        await box.exec("echo > /tmp/go")
        frames = parse_frames(await answer.aread())
    assert payload(frames, "o") == b"on\noff\n"
    assert json.loads(frames[-1][1])["verdict"] == "exited"


async def test_an_op_can_be_detached_after_its_start(make) -> None:
    box = await make(claim={}, ops={"reattach_grace": 0.2})
    await box.exec("mkfifo /tmp/go")
    async with box.stream("POST", "/v1/ops", json={"command": "read line < /tmp/go; echo done"}) as answer:
        op_id = answer.headers["X-Sandlot-Op"]
        assert (await box.call("POST", f"/v1/ops/{op_id}/detach")).json() == {}
    async with box.stream("POST", "/v1/ops", json={"command": "sleep 555", "id": "left-later"}):
        pass
    await until(lambda: ended_with(box, "client_gone"))  # the grace of the one before has passed
    await box.exec("echo > /tmp/go")
    document = await box.ended(op_id)
    assert (document["verdict"], document["detached"]) == ("exited", True)
    assert (await box.call("POST", "/v1/ops/none/detach")).status_code == 404


async def test_detached_ops_stay(make) -> None:
    box = await make(claim={}, ops={"reattach_grace": 0.1})
    document = await box.op("sleep 0.8; echo done", detach=True, wait=0)
    assert document["detached"] is True
    frames = await box.frames(f"/v1/ops/{document['op_id']}/stream")
    assert payload(frames, "o") == b"done\n"
