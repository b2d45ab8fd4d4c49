"""Any bytes from a client and any bytes from a sidecar: no 500, no exception in the log, no hang."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.dataplane.gateway import Gateway
from tests.dataplane.upstreams import Peer, Upstream, echo
from tests.waiting import SECONDS

# The gateway's thread does, while an example is made here.
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the .random. module inside strategies")

FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Running:
    """A gateway and its sidecars in a thread of their own: `sb-1` echoes, `sb-2` answers `self.answer`."""

    def __init__(self) -> None:
        self.answer = b""
        self.port = 0
        self.token = ""
        self.errors: list[str] = []
        self._loop = uvloop.new_event_loop()
        self._ready = threading.Event()
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Running:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(SECONDS)
        self._loop.close()

    def _run(self) -> None:
        handler = _Collect(self.errors)
        logging.getLogger("uvicorn.error").addHandler(handler)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            logging.getLogger("uvicorn.error").removeHandler(handler)

    async def _serve(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            good = await Upstream(echo()).start(path=Path(directory) / "good")
            bad = await Upstream(self._misbehave).start(path=Path(directory) / "bad")
            gateway = await Gateway().start()
            gateway.route(good.address)
            gateway.route(bad.address, sandbox_id="sb-2")
            self.port, self.token = gateway.port, gateway.token
            self._ready.set()
            await self._end.wait()
            await gateway.close()
            await bad.close()
            await good.close()

    async def _misbehave(self, peer: Peer) -> None:
        await peer.body(await peer.request())
        peer.send(self.answer)
        await peer.writer.drain()

    def talk(self, data: bytes, *, whole: bytes | None = None) -> bytes:
        """Send `data` and the end, and all that comes back; the server has to close its side.

        `whole`: the request has an answer, and its end is sent once that has come up to these bytes: a client that ends
        earlier has gone.
        """
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as sock:
            answer = b""
            try:
                sock.sendall(data)
                while whole is not None and (piece := sock.recv(65536)):
                    answer += piece
                    if whole in answer:
                        break
                sock.settimeout(0.03)  # what is answered at once; a half request gets nothing
                try:
                    while piece := sock.recv(65536):
                        answer += piece
                except TimeoutError:
                    pass
                sock.settimeout(30)
                sock.shutdown(socket.SHUT_WR)
                while piece := sock.recv(65536):
                    answer += piece
            except (ConnectionResetError, BrokenPipeError, OSError) as error:
                if isinstance(error, TimeoutError):
                    raise AssertionError(f"the gateway does not let go of {data!r}") from error
            return answer

    def is_well(self) -> None:
        request = f"POST /sbx/sb-1/exec HTTP/1.1\r\nauthorization: Bearer {self.token}\r\ncontent-length: 2\r\n\r\nhi"
        body = b"\r\n\r\nhi"
        assert self.talk(request.encode(), whole=body).endswith(body)
        assert self.errors == []


class _Collect(logging.Handler):
    def __init__(self, errors: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._errors = errors

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        # The way to make uvicorn cut a response: docs/gateway-data-plane.md.
        if text != "ASGI callable returned without completing response.":
            self._errors.append(self.format(record))


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    before = _sockets()
    with Running() as running:
        yield running
    assert _sockets() <= before


@pytest.fixture(autouse=True)
def _no_leaks() -> None:
    """In place of the check after each test: this gateway, with its kept connections, serves them all."""


def _sockets() -> int:
    return sum(os.readlink(f"/proc/self/fd/{fd}").startswith("socket:") for fd in _descriptors())


def _descriptors() -> list[str]:
    return [fd for fd in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{fd}")]


SEGMENTS = st.sampled_from(
    [
        "sbx",
        "expose",
        "sb-1",
        "sb-2",
        "exec",
        "ops",
        "files",
        "terminal",
        "claim",
        "..",
        "%2e%2e",
        "",
        "%",
        "%ff",
        "é",
        "*",
    ]
)
TARGETS = st.one_of(
    st.lists(SEGMENTS, max_size=6).map(lambda parts: "/" + "/".join(parts)),
    st.sampled_from(
        [
            "*",
            "http://x/sbx/sb-1/exec",
            "//",
            "/sbx/sb-1/exec?%00",
            "sbx",
            "/sbx/sb-1/terminal?command=sh&cols=9",
        ]
    ),
    st.text(max_size=30),
).map(lambda text: text.encode("utf-8", "surrogatepass"))
METHODS = st.sampled_from(
    [b"GET", b"POST", b"PUT", b"HEAD", b"DELETE", b"OPTIONS", b"CONNECT", b"PATCH", b"TRACE", b"G"]
)
HEADER_LINES = st.one_of(
    st.sampled_from(
        [
            b"content-length: 2",
            b"content-length: 0",
            b"content-length: -1",
            b"content-length: 99999999999999999999",
            b"transfer-encoding: chunked",
            b"transfer-encoding: gzip",
            b"connection: close",
            b"connection: upgrade",
            b"upgrade: websocket",
            b"upgrade: h2c",
            b"sec-websocket-version: 13",
            b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
            b"expect: 100-continue",
            b"host:",
            b"x-sandlot-op: \xff\xfe",
            b"x-request-id: \x80" + b"i" * 300,
            b"connection: ,,;=\xff",
        ]
    ),
    st.binary(max_size=30),
)
BODIES = st.one_of(st.sampled_from([b"", b"hi", b"2\r\nhi\r\n0\r\n\r\n", b"zz\r\n"]), st.binary(max_size=30))


@FUZZ
@given(
    method=METHODS,
    target=TARGETS,
    version=st.sampled_from([b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"X"]),
    headers=st.lists(HEADER_LINES, max_size=6),
    authorized=st.booleans(),
    body=BODIES,
)
def test_any_request_is_answered_or_refused(running, method, target, version, headers, authorized, body):
    lines = [method + b" " + target + b" " + version, *headers]
    if authorized:
        lines.append(b"authorization: Bearer " + running.token.encode())
    answer = running.talk(b"\r\n".join(lines) + b"\r\n\r\n" + body)
    assert b"HTTP/1.1 500" not in answer
    assert answer == b"" or answer.startswith(b"HTTP/1.1 ")
    running.is_well()


@FUZZ
@given(pieces=st.lists(st.binary(max_size=60), max_size=5))
def test_any_bytes_are_survived(running, pieces):
    answer = running.talk(b"".join(pieces))
    assert b"HTTP/1.1 500" not in answer
    running.is_well()


ANSWERS = st.one_of(
    st.binary(max_size=80),
    st.tuples(
        st.sampled_from([b"HTTP/1.1 ", b"HTTP/1.0 ", b"HTTP/9 ", b""]),
        st.sampled_from(
            [
                b"200 OK",
                b"204 No",
                b"304 Not",
                b"100 Continue",
                b"101 Up",
                b"410 Gone",
                b"600 X",
                b"000",
                b"2xx",
            ]
        ),
        st.lists(
            st.one_of(
                st.sampled_from(
                    [
                        b"content-length: 3",
                        b"content-length: 0",
                        b"content-length: 12",
                        b"transfer-encoding: chunked",
                        b"connection: upgrade",
                        b"upgrade: x",
                        b"x-sandlot-verdict: \xff" + b"v" * 50,
                        b"x: \x7f\x01",
                        b": empty",
                        b"content-length: 3, 3",
                    ]
                ),
                st.binary(max_size=20),
            ),
            max_size=5,
        ),
        st.sampled_from(
            [
                b"",
                b"abc",
                b'{"error":"ended"}',
                b'{"error":"ended","verdict":7}',
                b"3\r\nabc\r\n0\r\n\r\n",
                b"[]",
            ]
        ),
    ).map(lambda parts: parts[0] + b"\r\n".join([parts[1], *parts[2]]) + b"\r\n\r\n" + parts[3]),
)


@FUZZ
@given(answer=ANSWERS, method=st.sampled_from(["POST", "GET", "HEAD"]))
def test_any_answer_of_a_sidecar_is_passed_on_or_told(running, answer, method):
    running.answer = answer
    request = f"{method} /sbx/sb-2/exec HTTP/1.1\r\nauthorization: Bearer key-of-acme\r\ncontent-length: 2\r\n\r\nhi"
    got = running.talk(request.encode(), whole=b"")
    assert got.startswith(b"HTTP/1.1 ")
    assert not got.startswith(b"HTTP/1.1 500")
    running.is_well()
