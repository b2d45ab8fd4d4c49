"""A terminal over WebSocket: bytes both ways, resize, signal, attach, and how it ends."""

from __future__ import annotations

import json

import pytest
import websockets
from hypothesis import given
from hypothesis import strategies as st
from sandlot_gateway.data.breaker import Limits
from sandlot_gateway.data.errors import WireError
from sandlot_gateway.data.frames import MAX_FRAME, FrameReader

from tests.dataplane.sidecar import TerminalSidecar, frame
from tests.waiting import until


@pytest.fixture
async def terminal(gateway, upstream):
    async def start(**options):
        sidecar = TerminalSidecar()
        server = await upstream(sidecar)
        gw = await gateway(**options)
        gw.route(server.address)
        return gw, sidecar

    return start


def url(gw, query: str) -> str:
    return f"ws://127.0.0.1:{gw.port}/sbx/sb-1/terminal?{query}"


def bearer(token: str) -> dict:
    return {"additional_headers": {"Authorization": f"Bearer {token}"}, "proxy": None}


async def receive(connection, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = await connection.recv()
        assert isinstance(piece, bytes)
        data += piece
    return data


async def test_a_whole_session(terminal):
    gw, sidecar = await terminal()
    async with websockets.connect(
        url(gw, "command=bash%20-i&cols=132&rows=43&user=app"), **bearer(gw.token)
    ) as connection:
        op = json.loads(await connection.recv())["op_id"]
        assert sidecar.spec == {
            "id": op,
            "command": "bash -i",
            "stdin": True,
            "pty": {"cols": 132, "rows": 43},
            "user": "app",
        }
        assert connection.response.headers["x-sandlot-op"] == op
        assert await receive(connection, 2) == b"$ "
        await connection.send(b"echo \xff")
        assert await receive(connection, 6) == b"echo \xff"
        big = bytes(range(256)) * 4000
        await connection.send(big)
        assert await receive(connection, len(big)) == big
        await connection.send(json.dumps({"resize": {"cols": 80, "rows": 25}}))
        await connection.send(json.dumps({"signal": "INT"}))
        await connection.send("nonsense")
        await connection.send("[1]")
        await connection.send("[" * 100_000)
        await connection.send(b"exit")
        assert json.loads(await connection.recv()) == {"exit": {"exit_code": 3, "verdict": "exited"}}
        with pytest.raises(websockets.ConnectionClosedOK):
            await connection.recv()
    assert sidecar.sizes == [{"cols": 80, "rows": 25}]
    assert sidecar.signals == [{"signal": "INT", "tree": True}]
    assert sidecar.taken == b"echo \xff" + big + b"exit"
    await until(lambda: gw.metrics.routes["terminal"].in_flight == 0)


async def test_a_client_that_leaves_detaches_and_can_attach_again_where_its_input_was(terminal):
    gw, sidecar = await terminal()
    async with websockets.connect(url(gw, f"command=sh&op=my-op&token={gw.token}"), proxy=None) as connection:
        assert json.loads(await connection.recv()) == {"op_id": "my-op"}
        await receive(connection, 2)
        await connection.send(b"abc")
        await receive(connection, 3)
    await sidecar.detached.wait()
    async with websockets.connect(url(gw, "op=my-op"), **bearer(gw.token)) as connection:
        await connection.recv()
        await receive(connection, 2)
        await connection.send(b"def")
        await receive(connection, 3)
    assert sidecar.taken == b"abcdef"


async def test_input_waits_for_a_command_that_does_not_read(terminal):
    gw, sidecar = await terminal()
    sidecar.full = 3
    async with websockets.connect(url(gw, "command=sh"), **bearer(gw.token)) as connection:
        await connection.recv()
        await receive(connection, 2)
        await connection.send(b"late")
        assert await receive(connection, 4) == b"late"
    assert sidecar.taken == b"late"


@pytest.mark.parametrize(
    ("query", "status", "error", "field"),
    [
        ("", 400, "bad_request", "command"),
        ("command=", 400, "bad_request", "command"),
        ("op=a/b", 400, "bad_request", "op"),
        ("op=..", 400, "bad_request", "op"),
        ("command=sh&cols=0", 400, "bad_request", "cols"),
        ("command=sh&rows=x", 400, "bad_request", "rows"),
        ("command=sh&offset=-1", 400, "bad_request", "offset"),
        ("op=unknown", 404, "no_such_op", None),
    ],
)
async def test_a_bad_request_is_refused_before_the_upgrade(terminal, query, status, error, field):
    gw, _ = await terminal()
    with pytest.raises(websockets.InvalidStatus) as refused:
        async with websockets.connect(url(gw, query), **bearer(gw.token)):
            pass
    document = json.loads(refused.value.response.body)
    assert (refused.value.response.status_code, document["error"], document.get("field")) == (
        status,
        error,
        field,
    )


async def test_the_same_doors_as_over_http(terminal):
    gw, sidecar = await terminal(limits=Limits(sockets=1))

    async def refusal(where: str, token: str) -> tuple[int, str]:
        with pytest.raises(websockets.InvalidStatus) as refused:
            async with websockets.connect(where, **bearer(token)):
                pass
        return refused.value.response.status_code, json.loads(refused.value.response.body)["error"]

    assert await refusal(url(gw, "command=sh"), "wrong") == (401, "unauthorized")
    assert await refusal(url(gw, "command=sh"), "key-of-other") == (502, "sandbox_not_found")
    assert await refusal(f"ws://127.0.0.1:{gw.port}/sbx/sb-1/exec", gw.token) == (404, "no_such_route")
    assert await refusal(f"ws://127.0.0.1:{gw.port}/elsewhere", gw.token) == (404, "no_such_route")
    async with websockets.connect(url(gw, "command=sh"), **bearer(gw.token)):
        assert await refusal(url(gw, "command=sh"), gw.token) == (503, "busy")
    assert sidecar.spec is not None
    gw.route("unix:/gone", status="ERROR", verdict="oom")
    assert await refusal(url(gw, "command=sh"), gw.token) == (502, "sandbox_not_found")


async def test_each_refusal_has_the_requests_id_and_so_has_what_nothing_expects(terminal, caplog):
    gw, _ = await terminal()
    headers = {"Authorization": "Bearer key-of-acme", "X-Request-Id": "mine"}
    with pytest.raises(websockets.InvalidStatus) as refused:
        async with websockets.connect(url(gw, "op=.."), additional_headers=headers, proxy=None):
            pass
    assert refused.value.response.headers["x-request-id"] == "mine"
    gw.keys.keys = None  # so that to look for a key fails
    with pytest.raises(websockets.InvalidStatus) as refused:
        async with websockets.connect(url(gw, "command=sh"), additional_headers=headers, proxy=None):
            pass
    response = refused.value.response
    assert (response.status_code, json.loads(response.body)["error"]) == (503, "internal")
    assert response.headers["x-request-id"] == "mine"
    [record] = [record for record in caplog.records if record.exc_info]
    assert record.request == "mine"


async def test_a_lost_sidecar_closes_the_terminal_with_an_error_code(terminal):
    gw, sidecar = await terminal()
    async with websockets.connect(url(gw, "command=sh"), **bearer(gw.token)) as connection:
        await connection.recv()
        await receive(connection, 2)
        sidecar.stream.abort()
        with pytest.raises(websockets.ConnectionClosedError) as closed:
            await connection.recv()
    assert closed.value.rcvd.code == 1011


@given(
    frames=st.lists(st.tuples(st.sampled_from(b"oeksx"), st.binary(max_size=50))),
    cuts=st.lists(st.integers(0, 400), max_size=10),
)
def test_frames_read_the_same_however_they_are_cut(frames, cuts):
    wire = b"".join(frame(bytes([kind]), payload) for kind, payload in frames)
    places = sorted({min(cut, len(wire)) for cut in cuts})
    reader = FrameReader()
    seen = []
    for start, end in zip([0, *places], [*places, len(wire)], strict=True):
        seen += reader.feed(wire[start:end])
    assert seen == frames
    assert not reader.inside


def test_a_frame_that_claims_to_be_huge_is_an_error():
    reader = FrameReader()
    with pytest.raises(WireError):
        list(reader.feed(b"o" + (MAX_FRAME + 1).to_bytes(4, "big")))
