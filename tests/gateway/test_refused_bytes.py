"""Bytes that are no request are answered as a request would be: with an id, and the fields of both planes' errors."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from tests.gateway.conftest import Running
from tests.waiting import until

HEAD = b"POST /api/v1/sandbox HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer key-a\r\n"
CHUNKED = HEAD + b"Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n"
URL = b"GET http://host HTTP/1.1\r\nHost: x\r\n\r\n"  # no path
PORT = b"CONNECT host:80 HTTP/1.1\r\nHost: x\r\n\r\n"
CUT = b"GET http://[:: HTTP/1.1\r\nHost: x\r\n\r\n"
MOST = 64 << 10  # bytes


def over(begin: bytes) -> bytes:
    """A byte more than is taken: a connection that is closed before all has been read loses the answer."""
    return begin.ljust(MOST + 1, b"x")


async def answers_to(box: Running, *pieces: bytes) -> list[httpx.Response]:
    """All responses until the gateway closes the connection. After each piece but the last it asks for more."""
    url = httpx.URL(box.url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    try:
        for piece in pieces[:-1]:
            writer.write(piece)
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(pieces[-1])
        return await responses(reader)
    finally:
        writer.close()


async def responses(reader: asyncio.StreamReader) -> list[httpx.Response]:
    """All that come until the gateway closes the connection."""
    found: list[httpx.Response] = []
    async with asyncio.timeout(30):
        while line := await reader.readline():
            headers: dict[str, str] = {}
            while (field := await reader.readline()) != b"\r\n":
                name, _, value = field.decode().partition(":")
                headers[name.lower()] = value.strip()
            body = await reader.readexactly(int(headers["content-length"]))
            found.append(httpx.Response(int(line.split()[1]), headers=headers, content=body))
    return found


def told(answer: httpx.Response) -> dict[str, Any]:
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["connection"] == "close"
    document = json.loads(answer.content)
    assert document["message"] == document["detail"]
    assert document["errors"] == []
    return document


@pytest.mark.parametrize(
    ("pieces", "status", "error"),
    [
        ([b"no request\r\n\r\n"], 400, "bad_request"),
        ([URL], 400, "bad_request"),
        ([PORT], 400, "bad_request"),
        ([CUT], 400, "bad_request"),
        ([CHUNKED, b"no size\r\n"], 400, "bad_request"),
        ([HEAD + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"], 400, "bad_request"),
        ([over(HEAD + b"X-Long: ")], 431, "header_too_large"),
        ([CHUNKED, over(b"5;x=")], 431, "header_too_large"),
    ],
    ids=[
        "no request",
        "no path",
        "a port",
        "half an address",
        "no chunk",
        "no GET",
        "a long head",
        "a long extension",
    ],
)
async def test_they_are_answered_in_the_shape_of_errors(
    box: Running, pieces: list[bytes], status: int, error: str
) -> None:
    [answer] = await answers_to(box, *pieces)
    assert (answer.status_code, told(answer)["error"]) == (status, error)
    assert answer.headers["x-request-id"]


async def test_the_clients_own_id_is_in_the_answer_and_another_one_each_time(box: Running) -> None:
    data = over(HEAD + b"X-Request-Id: mine\r\nX-Long: ")
    assert [one.headers["x-request-id"] for one in await answers_to(box, data)] == ["mine"]
    ids = [(await answers_to(box, b"no request\r\n\r\n"))[0].headers["x-request-id"] for _ in range(2)]
    assert ids[0] != ids[1]


BAD = [b"no request\r\n\r\n", URL, PORT, CUT, over(b"GET / HTTP/1.1\r\nX-Long: "), CHUNKED + b"no size\r\n"]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("queued", [0, 2], ids=["", "queued"])
async def test_the_requests_before_them_are_answered_first(box: Running, bad: bytes, queued: int) -> None:
    """They come while the first request runs and others wait for their turn."""
    made = await box.create()
    sidecar = box.machine.of_sandbox(made["id"])
    sidecar.hold = asyncio.Event()
    url = httpx.URL(box.url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    try:
        writer.write(b"".join(command(made["id"], str(number)) for number in range(1 + queued)) + bad)
        await until(lambda: sidecar.held)
        writer.write(b"nothing of this is read")
        sidecar.hold.set()
        *answers, refusal = await responses(reader)
    finally:
        writer.close()
    assert [(one.status_code, one.json()["stdout"]) for one in answers] == [
        (200, str(number)) for number in range(1 + queued)
    ]
    assert told(refusal)["error"] in ("bad_request", "header_too_large")


async def test_a_request_that_closes_the_connection_has_the_last_answer(box: Running) -> None:
    made = await box.create()
    request = command(made["id"], "last", b"Connection: close\r\n")
    [answer] = await answers_to(box, request + b"no request\r\n\r\n")
    assert answer.json()["stdout"] == "last"


def command(sandbox_id: str, text: str, fields: bytes = b"") -> bytes:
    body = json.dumps({"command": text}).encode()
    head = f"POST /sbx/{sandbox_id}/exec HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer key-a\r\n".encode()
    return head + fields + b"Content-Length: %d\r\n\r\n" % len(body) + body


@pytest.mark.parametrize("after", [b"no\r\n\r\n", URL, PORT, CUT])
async def test_they_are_answered_after_an_answer(box: Running, after: bytes) -> None:
    url = httpx.URL(box.url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    try:
        for data, status in ((b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", b"200"), (after, b"400")):
            writer.write(data)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.split()[1] == status
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
        assert await reader.read() == b""
    finally:
        writer.close()
