"""Datagrams to a port inside the sandbox, through its sidecar."""

from __future__ import annotations

import asyncio
import os

import pytest
from sandlot_contract.datagrams import MAX_DATAGRAM, DatagramReader, frame

from tests.executor.gvisor import NEEDS_RUNSC
from tests.sidecar.gvisor_sidecar import MakeBox
from tests.sidecar.stopping import ENDS_BY_ITSELF, is_up
from tests.sidecar.support import Sidecar
from tests.stopped import stopped
from tests.waiting import until

pytestmark = pytest.mark.root

ECHO = (
    "import socket\ns=socket.socket(type=socket.SOCK_DGRAM); s.bind(('127.0.0.1',7779))\nprint('on',flush=True)\n"
    "while 1:\n d,a=s.recvfrom(65536); s.sendto(d,a)"
)


class Peer:
    """One client's connection to `POST /v1/udp`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer, self.frames = reader, writer, DatagramReader()

    async def read(self) -> bytes:
        while (payload := self.frames.read()) is None:
            data = await asyncio.wait_for(self.reader.read(65536), 50)
            if not data:
                raise EOFError
            self.frames.feed(data)
        return payload

    async def ask(self, payload: bytes) -> bytes:
        self.writer.write(frame(payload))
        return await self.read()

    async def answers(self, payload: bytes) -> bool:
        """Return whether an answer came at once: ask until it does."""
        self.writer.write(frame(payload))
        try:
            async with asyncio.timeout(0.2):
                return await self.read() == payload
        except TimeoutError:
            return False


async def connect(box: Sidecar, *, port: int = 7779, early: bytes = b"") -> Peer:
    reader, writer = await opening(box, port=port, early=early)
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
    return Peer(reader, writer)


async def opening(
    box: Sidecar, *, port: int = 7779, early: bytes = b""
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await box.raw()
    head = b"POST /v1/udp?port=%d HTTP/1.1\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: sandlot-udp\r\n\r\n"
    writer.write(head % (port, box.token.encode()) + early)
    return reader, writer


async def phase_is(box: Sidecar, phase: str) -> bool:
    return (await box.instance("GET", "/v1/state")).json()["phase"] == phase


async def serve(box: Sidecar, op: str) -> None:
    await box.op(["python3", "-c", ECHO], id=op, detach=True)
    await until(lambda: printed(box, op, "on\n"))


async def test_they_keep_their_boundaries_and_a_port_may_open_later(box: Sidecar) -> None:
    await check_boundaries(box)


async def test_a_reset_cuts_them_and_the_next_ones_reach_the_new_sandbox(make) -> None:
    box = await make(claim={"network": "none"})  # a network of its own, which the reset replaces
    await serve(box, "one")
    await check_reset(box)


async def test_one_that_opens_during_a_reset_is_cut(make) -> None:
    box = await make(claim={"network": "none", **ENDS_BY_ITSELF})
    await until(lambda: is_up(box))
    with stopped(box.executor_pid()):
        reader, writer = await opening(box)
        await box.call("GET", "/v1/state")  # the sidecar has the request before this one
        reset = asyncio.create_task(box.instance("POST", "/v1/reset", json={"keep_claim": True}))
        await until(lambda: phase_is(box, "starting"))
    assert await asyncio.wait_for(reader.read(), 50) == b""
    writer.close()
    assert (await reset).json()["equal"] is True


@pytest.mark.heavy
@NEEDS_RUNSC[0]
@NEEDS_RUNSC[1]
async def test_under_gvisor(gvisor: MakeBox) -> None:
    await check_boundaries(await gvisor())


async def check_boundaries(box: Sidecar) -> None:
    early = await connect(box, early=frame(b"to nobody"))
    seen = [(await box.call("GET", "/v1/state")).json()["last_active_at"] for _ in range(2)]
    assert seen[0] == seen[1]  # a client, whose address may be forged, is no use of the sandbox
    await serve(box, "echo")
    await until(lambda: early.answers(b"now"))
    peer = await connect(box, early=frame(b"first"))
    assert await peer.read() == b"first"
    for payload in (b"", b"a", os.urandom(MAX_DATAGRAM)):
        assert await peer.ask(payload) == payload
    peer.writer.write(b"".join(frame(b"%d" % number) for number in range(100)))
    assert [await peer.read() for _ in range(100)] == [b"%d" % number for number in range(100)]
    assert (await box.call("POST", "/v1/udp?port=7779")).status_code == 400
    early.writer.close()
    peer.writer.write(b"\xff\xff" + bytes(100))
    with pytest.raises(EOFError):
        await peer.read()
    peer.writer.close()


async def check_reset(box: Sidecar) -> None:
    peer = await connect(box)
    assert await peer.ask(b"before") == b"before"
    reset = await box.instance("POST", "/v1/reset", json={"keep_claim": True})
    assert reset.json()["equal"] is True, reset.text
    with pytest.raises(EOFError):
        await peer.read()
    peer.writer.close()
    await serve(box, "two")
    again = await connect(box)
    assert await again.ask(b"after") == b"after"
    again.writer.close()


async def printed(box: Sidecar, op_id: str, text: str) -> bool:
    return (await box.call("GET", f"/v1/ops/{op_id}/output")).text == text
