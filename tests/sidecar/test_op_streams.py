"""An op's output as frames: while it is made, from any offset, and where a lost stream stopped."""

from __future__ import annotations

import json
from functools import partial

import pytest

from tests.sidecar.support import Sidecar, parse_frames, payload
from tests.waiting import until

pytestmark = pytest.mark.root


async def printed(box: Sidecar, op_id: str, number: int) -> bool:
    return (await box.call("GET", f"/v1/ops/{op_id}")).json()["stdout_bytes"] >= number


async def test_streamed_form(box: Sidecar) -> None:
    response = await box.call(
        "POST", "/v1/ops", json={"command": "echo out; echo err >&2; exit 4", "id": "a"}
    )
    assert response.headers["content-type"] == "application/vnd.sandlot.frames"
    assert response.headers["x-sandlot-op"] == "a"
    assert response.headers["x-sandlot-attached"] == "0"
    frames = parse_frames(response.content)
    assert frames[0][0] == "s"
    start = json.loads(frames[0][1])
    assert start["op_id"] == "a"
    assert start["pid"] > 1
    assert payload(frames, "o") == b"out\n"
    assert payload(frames, "e") == b"err\n"
    assert frames[-1][0] == "x"
    end = json.loads(frames[-1][1])
    assert (end["exit_code"], end["verdict"], end["state"]) == (4, "exited", "ended")
    assert end["offset"] == sum(5 + len(data) for kind, data in frames if kind != "x")


async def test_output_streams_while_it_is_made(box: Sidecar) -> None:
    async with box.stream(
        "POST", "/v1/ops", json={"command": "echo first; read line; echo got $line", "stdin": True, "id": "i"}
    ) as answer:
        seen = b""
        async for part in answer.aiter_raw():
            seen += part
            if b"first\n" in seen and b"got" not in seen:
                await box.call("POST", "/v1/ops/i/stdin?offset=0", content=b"hello\n")
        assert b"got hello\n" in seen


async def test_offsets(box: Sidecar) -> None:
    whole = (
        await box.call(
            "POST", "/v1/ops", json={"command": "for i in 1 2 3; do echo $i; sleep 0.05; done", "id": "f"}
        )
    ).content
    frames = parse_frames(whole)
    offset = 0
    for kind, data in frames:
        rest = await box.call("GET", f"/v1/ops/f/stream?offset={offset}")
        assert rest.content == whole[offset:]
        offset += 5 + len(data) if kind != "x" else 0
    bad = await box.call("GET", "/v1/ops/f/stream?offset=3")
    assert bad.status_code == 416
    assert bad.json()["error"] == "bad_offset"
    assert bad.json()["size"] == offset
    assert (await box.call("GET", f"/v1/ops/f/stream?offset={offset + 1}")).status_code == 416


async def test_resumed_stream_begins_where_the_lost_one_was(box: Sidecar) -> None:
    command = "echo one; read line; echo $line; read line; echo $line"
    await box.op(command, id="again", stdin=True, detach=True)
    assert (await box.call("GET", "/v1/ops/again?spec=1")).json()["spec"]["command"] == command
    async with box.stream("GET", "/v1/ops/again/stream?resume=1") as stream:
        seen = b""
        async for piece in stream.aiter_raw():
            seen += piece
            if b"one" in seen:
                break
    await box.call("POST", "/v1/ops/again/stdin?id=1", content=b"two\n")
    await until(partial(printed, box, "again", 8))
    async with box.stream("GET", "/v1/ops/again/stream?resume=1") as stream:
        await box.call("POST", "/v1/ops/again/stdin?id=2", content=b"three\n")
        found = parse_frames(await stream.aread())
    assert (payload(found, "o"), found[-1][0]) == (b"two\nthree\n", "x")
    document = (await box.call("GET", "/v1/ops/again?spec=1")).json()
    assert (document["state"], document["spec"]) == ("ended", None)
    assert [kind for kind, _ in await box.frames("/v1/ops/again/stream?resume=1")] == ["x"]
    assert payload(await box.frames("/v1/ops/again/stream"), "o") == b"one\ntwo\nthree\n"


async def test_quiet_op_tells_its_start_with_its_end(box: Sidecar) -> None:
    found = await box.frames("/v1/ops", method="POST", json={"command": "echo out", "quiet": True})
    assert [kind for kind, _ in found] == ["s", "o", "x"]
