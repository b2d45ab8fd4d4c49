"""A sidecar's `/v1/tcp` and terminal ops in a few lines: enough of the contract for the gateway's side of it."""

from __future__ import annotations

import asyncio
import json

from tests.dataplane.upstreams import Peer, Request


def frame(kind: bytes, payload: bytes) -> bytes:
    return kind + len(payload).to_bytes(4, "big") + payload


def tcp_to(ports: dict[int, int], requests: list[Request] | None = None):
    """`POST /v1/tcp?port=N` leads to 127.0.0.1:ports[N]; a port that is not there is refused."""

    async def behave(peer: Peer) -> None:
        while True:
            request = await peer.request()
            if requests is not None:
                requests.append(request)
            port = int(request.target.removeprefix("/v1/tcp?port="))
            if port not in ports:
                peer.answer(b'{"error":"refused"}', status="502 Bad Gateway")
                continue
            reader, writer = await asyncio.open_connection("127.0.0.1", ports[port])
            peer.send(
                b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: sandlot-tcp\r\n\r\n"
            )
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(_carry(peer.reader, writer))
                    both.create_task(_carry(reader, peer.writer))
            except* ConnectionError:
                pass
            finally:
                writer.transport.abort()
            return

    return behave


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


class TerminalSidecar:
    """One op with a PTY: echoes its input, notes resizes and signals, ends on the input `exit`."""

    def __init__(self) -> None:
        self.spec: dict | None = None
        self.taken = b""
        self.sizes: list[dict] = []
        self.signals: list[object] = []
        self.stream: Peer | None = None
        self.detached = asyncio.Event()
        self.full = 0  # so many stdin requests are answered 408 first

    async def __call__(self, peer: Peer) -> None:
        while True:
            request = await peer.request()
            body = await peer.body(request)
            path, _, query = request.target.partition("?")
            if path == "/v1/ops":
                self.spec = json.loads(body)
                await self._serve_stream(peer, attached=False)
                return
            op, _, action = path.removeprefix("/v1/ops/").partition("/")
            if self.spec is None or op != self.spec["id"]:
                peer.answer(b'{"error":"no_such_op","message":"no such op"}', status="404 Not Found")
            elif action == "stream":
                await self._serve_stream(peer, attached=True)
                return
            elif action == "stdin":
                self._stdin(peer, int(query.removeprefix("offset=")), body)
            else:
                (self.sizes if action == "resize" else self.signals).append(json.loads(body))
                peer.answer(b"{}")

    async def _serve_stream(self, peer: Peer, *, attached: bool) -> None:
        self.stream = peer
        peer.send(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nx-sandlot-attached: %d\r\n\r\n" % attached
        )
        self.send(frame(b"s", b'{"pid":1}') + frame(b"k", b"") + frame(b"o", b"$ "))
        await peer.ended()
        self.detached.set()

    def send(self, data: bytes) -> None:
        assert self.stream is not None
        self.stream.send(b"%x\r\n%b\r\n" % (len(data), data))

    def _stdin(self, peer: Peer, offset: int, body: bytes) -> None:
        if self.full:
            self.full -= 1
            peer.answer(b'{"error":"stdin_full"}', status="408 Request Timeout")
            return
        if offset > len(self.taken):
            gap = json.dumps({"error": "stdin_gap", "offset": len(self.taken)}).encode()
            peer.answer(gap, status="409 Conflict")
            return
        fresh = body[len(self.taken) - offset :]
        self.taken += fresh
        peer.answer(json.dumps({"offset": len(self.taken)}).encode())
        if fresh == b"exit":
            assert self.stream is not None
            self.send(frame(b"x", b'{"exit_code":3,"verdict":"exited"}'))
            self.stream.send(b"0\r\n\r\n")
        elif fresh:
            for at in range(0, len(fresh), 3):  # frames cut anywhere
                self.send(frame(b"o", fresh[at : at + 3]))
