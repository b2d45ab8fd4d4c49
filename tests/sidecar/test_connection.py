"""One connection fed by hand: what its client sends is bounded also where the parser tells nobody of it."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest
from sandlot_sidecar.core.errors import ClientGone
from sandlot_sidecar.server.bounds import MAX_HEADER, STRANGE_HEADER
from sandlot_sidecar.server.file_send import send_file
from sandlot_sidecar.server.http import NOBODY, SANDBOX, Http, Route
from sandlot_sidecar.server.request import Request

from tests.waiting import loop_turns


class Wire:
    """A transport that keeps what is written to it."""

    def __init__(self) -> None:
        self.written = b""
        self.closed = False

    def get_extra_info(self, name: str) -> Any:
        return ("10.0.0.8", 5) if name == "peername" else ("10.0.0.7", 1)

    def set_write_buffer_limits(self, *, high: int) -> None:
        return

    def write(self, data: bytes) -> None:
        self.written += data

    def write_eof(self) -> None:
        return

    def pause_reading(self) -> None:
        return

    resume_reading = pause_reading

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close


class Uploads:
    """A route that reads a body to its end."""

    def __init__(self) -> None:
        self.size = 0
        self.lost = False

    async def take(self, request: Request) -> None:
        assert request.stream is not None
        try:
            while data := await request.stream.read():
                self.size += len(data)
        except ClientGone:
            self.lost = True
            raise
        request.respond_json({"size": self.size})


def connect(http: Http) -> tuple[Any, Wire]:
    connection, wire = http.connect(), Wire()
    connection.connection_made(wire)
    return connection, wire


def head(path: str, token: str | None) -> bytes:
    shown = "" if token is None else f"Authorization: Bearer {token}\r\n"
    return f"POST {path} HTTP/1.1\r\nHost: x\r\n{shown}Transfer-Encoding: chunked\r\n\r\n".encode()


async def settled() -> None:
    """Whatever can be done without more bytes is done."""
    await loop_turns(20)


@pytest.mark.parametrize(
    "start",
    [b"5\r\nhello\r\n0\r\nX: ", b"5\r\nhello\r\n5;x=", b"0\r\nX: a\r\n"],
    ids=["trailer", "extension", "trailers"],
)
@pytest.mark.parametrize("token", [None, "t"], ids=["stranger", "owner"])
@pytest.mark.parametrize("path", ["/healthz", "/take", "/json"])
async def test_what_frames_a_body_has_an_end(start: bytes, token: str | None, path: str) -> None:
    http, uploads = Http(instance_token="i"), Uploads()
    http.set_sandbox_token("t")
    http.add("POST", "/healthz", Route(lambda request: request.respond(b"{}"), needs=NOBODY))
    http.add("POST", "/take", Route(uploads.take, needs=SANDBOX, streams=True))
    http.add("POST", "/json", Route(lambda request: request.respond(b"{}"), needs=SANDBOX))
    connection, wire = connect(http)
    connection.data_received(head(path, token) + start)
    sent = 0
    while not wire.closed and sent <= 2 * MAX_HEADER:
        piece = b"a" * 1000 if start[-1:] != b"\n" else b"X-%d: %s\r\n" % (sent, b"a" * 990)
        connection.data_received(piece)
        sent += len(piece)
        await asyncio.sleep(0)
    assert wire.closed
    assert sent <= (MAX_HEADER if token and path != "/healthz" else STRANGE_HEADER) + 2000
    if token and path != "/healthz":
        assert wire.written.split()[1] == b"431"
    connection.connection_lost(None)
    await http.close()


async def test_an_upload_of_which_nothing_more_comes_is_over_for_its_handler() -> None:
    http, uploads = Http(instance_token="i"), Uploads()
    http.set_sandbox_token("t")
    http.add("POST", "/take", Route(uploads.take, needs=SANDBOX, streams=True))
    connection, wire = connect(http)
    connection.data_received(head("/take", "t") + b"5\r\nhello\r\n")
    await asyncio.sleep(0)
    connection.data_received(b"no size\r\n")
    connection.connection_lost(None)
    await settled()
    assert wire.written.split()[1] == b"400"
    assert uploads.lost
    await http.close()


async def test_an_upload_of_many_small_chunks_is_taken() -> None:
    http, uploads = Http(instance_token="i"), Uploads()
    http.set_sandbox_token("t")
    http.add("POST", "/take", Route(uploads.take, needs=SANDBOX, streams=True))
    connection, wire = connect(http)
    connection.data_received(head("/take", "t"))
    count = MAX_HEADER
    for _ in range(count):
        for piece in (b"1;name=value\r\n", b"x", b"\r\n"):
            connection.data_received(piece)
        await asyncio.sleep(0)
    connection.data_received(b"0\r\nX: y\r\n\r\n")
    await settled()
    assert wire.written.endswith(b'{"size":%d}' % count)
    wire.written = b""
    connection.data_received(head("/take", "t") + b"0\r\n\r\n")  # and the connection goes on
    await settled()
    assert not wire.closed
    connection.connection_lost(None)
    await http.close()


@pytest.mark.parametrize("size", [0, 10, 1 << 20], ids=["as in proc", "small", "large"])
@pytest.mark.parametrize("after", [0, 1], ids=["at once", "after a part"])
async def test_a_file_that_cannot_be_read_is_told_or_cut(
    size: int, after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, http = tmp_path / "file", Http(instance_token="i")
    path.write_bytes(bytes(size))
    reads = 0

    def read(*args: int) -> bytes:
        nonlocal reads
        reads += 1
        if reads > after:
            raise OSError(errno.EIO, "Input/output error")
        return b"x" * 5

    async def sendfile(*args: Any, **options: Any) -> int:
        return len(read())

    async def send(request: Request) -> None:
        with path.open() as file:
            await send_file(request, file.fileno(), {})

    monkeypatch.setattr(os, "read", read)
    monkeypatch.setattr(os, "pread", read)
    monkeypatch.setattr(asyncio.get_running_loop(), "sendfile", sendfile)
    http.add("GET", "/send", Route(send, needs=NOBODY))
    connection, wire = connect(http)
    connection.data_received(b"GET /send HTTP/1.1\r\n\r\n")
    await settled()
    assert wire.closed
    if after == 0 and size <= 10:
        assert wire.written.split()[1] == b"400"
        assert b'"bad_path"' in wire.written
    else:
        assert wire.written.split()[1] == b"200"
        assert not wire.written.endswith(b"0\r\n\r\n")
    connection.connection_lost(None)
    await http.close()


class Held:
    """A route whose answer waits."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.begun = 0

    async def take(self, request: Request) -> None:
        self.begun += 1
        await self.go_on.wait()
        request.respond_json({"told": request.json()["tell"]})


def telling(text: str) -> bytes:
    body = b'{"tell": "%s"}' % text.encode()
    fields = b"Host: x\r\nAuthorization: Bearer t\r\n"
    return b"POST /held HTTP/1.1\r\n%sContent-Length: %d\r\n\r\n%s" % (fields, len(body), body)


BAD = {
    "no request": (b"no request\r\n\r\n", b"400"),
    "a long head": (b"GET / HTTP/1.1\r\nX: %s\r\n\r\n" % (b"x" * MAX_HEADER), b"431"),
    "no chunk": (head("/held", "t") + b"no size\r\n", b"400"),
    "an upgrade": (
        b"GET /held HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer t\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n",
        b"400",
    ),
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("queued", [0, 2], ids=["", "queued"])
@pytest.mark.parametrize("apart", [True, False], ids=["later", "at once"])
async def test_requests_before_bad_bytes_are_answered_first(bad: str, queued: int, apart: bool) -> None:
    http, held = Http(instance_token="i"), Held()
    http.set_sandbox_token("t")
    http.add("POST", "/held", Route(held.take, needs=SANDBOX))
    http.add("GET", "/held", Route(held.take, needs=SANDBOX))
    connection, wire = connect(http)
    data, status = BAD[bad]
    requests = b"".join(telling(str(number)) for number in range(1 + queued))
    for part in (requests, data) if apart else (requests + data,):
        connection.data_received(part)
        await settled()
    assert (wire.written, wire.closed, held.begun) == (b"", False, 1)
    connection.data_received(telling("nothing of this is read"))
    held.go_on.set()
    await settled()
    *answers, refusal = wire.written.split(b"HTTP/1.1 ")[1:]
    assert [one.rpartition(b"\r\n")[2] for one in answers] == [
        b'{"told":"%d"}' % number for number in range(1 + queued)
    ]
    assert refusal.startswith(status)
    assert b"Connection: close" in refusal
    assert wire.closed
    connection.connection_lost(None)
    await http.close()


async def test_bad_bytes_in_a_body_whose_answer_has_begun_only_cut_it() -> None:
    async def begin(request: Request) -> None:
        await request.start(kind="text/plain").write(b"part")
        assert request.stream is not None
        await request.stream.read()

    http = Http(instance_token="i")
    http.set_sandbox_token("t")
    http.add("POST", "/begin", Route(begin, needs=SANDBOX, streams=True))
    connection, wire = connect(http)
    connection.data_received(head("/begin", "t"))
    await settled()
    connection.data_received(b"no size\r\n")
    connection.connection_lost(None)
    await settled()
    assert wire.written.count(b"HTTP/1.1") == 1
    assert wire.written.endswith(b"part\r\n")
    assert wire.closed
    await http.close()


async def test_a_handler_whose_request_may_not_upgrade_ends() -> None:
    """It may wait for a body that never comes."""
    http, uploads = Http(instance_token="i"), Uploads()
    http.set_sandbox_token("t")
    http.add("POST", "/take", Route(uploads.take, needs=SANDBOX, streams=True))
    connection, wire = connect(http)
    fields = (
        b"Host: x\r\nAuthorization: Bearer t\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 5\r\n"
    )
    connection.data_received(b"POST /take HTTP/1.1\r\n%s\r\nhello" % fields)
    await settled()
    connection.connection_lost(None)
    await settled()
    assert wire.written.startswith(b"HTTP/1.1 400 ")
    assert (wire.closed, uploads.lost) == (True, True)
    await http.close()
