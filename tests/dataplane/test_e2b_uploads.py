"""E2B's uploads, whose pieces come from an iterator over the client's body, to a sandbox that is slow to accept."""

from __future__ import annotations

import asyncio
import gzip
import json

import pytest
from sandlot_contract.ids import SandboxId
from sandlot_contract.statuses import Status
from sandlot_gateway.data.dial import DialSettings
from sandlot_gateway.data.errors import ClientGone
from sandlot_gateway.data.routes import Route
from sandlot_gateway.e2b.file_query import FileQuery
from sandlot_gateway.e2b.files import Files
from sandlot_gateway.e2b.sidecar_call import SidecarCall

from tests.dataplane.slow import SlowUpstream
from tests.dataplane.upstreams import Peer
from tests.waiting import until

QUICK = DialSettings(timeout=0.2, first_timeout=0.02, backoff=0.001, max_backoff=0.02)
CONTENT = bytes(range(256)) * 40
HEAD = b'--x\r\ncontent-disposition: form-data; name="file"; filename="f"\r\n\r\n'


class Sidecar:
    """Accepts connections late, and keeps what was written."""

    def __init__(self, stack) -> None:
        self.written: list[bytes] = []
        self.connected = asyncio.Event()
        self.slow = SlowUpstream(self._write)
        stack.push_async_callback(self.slow.close)

    async def _write(self, peer: Peer) -> None:
        while True:
            request = await peer.request()
            self.connected.set()
            self.written.append(await peer.body(request))
            peer.answer(b"{}")


class Client:
    """The client's body, message by message, and the answer to it."""

    def __init__(self) -> None:
        self.waited_for = False
        self._messages: asyncio.Queue[dict] = asyncio.Queue()
        self.answer: list[dict] = []

    def send(self, piece: bytes, *, last: bool = False) -> None:
        self._messages.put_nowait({"type": "http.request", "body": piece, "more_body": not last})

    def leave(self) -> None:
        self._messages.put_nowait({"type": "http.disconnect"})

    async def receive(self) -> dict:
        self.waited_for = self._messages.empty()
        return await self._messages.get()

    async def told(self, message: dict) -> None:
        self.answer.append(message)


@pytest.fixture
def upload(pool, stack):
    """`upload(headers)` begins one: its client, its sidecar, its task and the dials so far."""

    def begin(*headers: tuple[bytes, bytes]):
        sidecar, client = Sidecar(stack), Client()
        route = Route(SandboxId("sb-1"), "acme", sidecar.slow.address, "token", Status.RUNNING)
        call = SidecarCall(pool=pool(dial=QUICK), route=route, request_id=b"r", user=None)
        query = FileQuery("/f", "", "", "")
        scope = {"type": "http", "headers": list(headers)}
        files = Files(scope, client.receive, client.told, query=query, request_id=b"r")
        return client, sidecar, asyncio.create_task(files.upload(call))

    return begin


@pytest.mark.parametrize(
    ("headers", "before", "body"),
    [
        ([(b"content-type", b"application/octet-stream")], b"", CONTENT),
        (
            [(b"content-type", b"application/octet-stream"), (b"content-encoding", b"gzip")],
            b"",
            gzip.compress(CONTENT),
        ),
        ([(b"content-type", b"multipart/form-data; boundary=x")], HEAD, CONTENT + b"\r\n--x--\r\n"),
    ],
    ids=["plain", "gzip", "form"],
)
async def test_an_upload_whose_content_comes_after_the_connection_is_whole(upload, headers, before, body):
    client, sidecar, writing = upload(*headers)
    client.send(before)
    await until(lambda: client.waited_for)
    await sidecar.slow.accept()
    await sidecar.connected.wait()
    for start in range(0, len(body), 1000):
        client.send(body[start : start + 1000])
    client.send(b"", last=True)
    assert await writing == 200
    assert sidecar.written == [CONTENT]
    assert json.loads(client.answer[-1]["body"])[0]["path"] == "/f"


async def test_a_client_that_leaves_before_the_connection_writes_nothing(upload):
    client, sidecar, writing = upload((b"content-type", b"application/octet-stream"))
    await until(lambda: client.waited_for)
    client.leave()
    with pytest.raises(ClientGone):
        await writing
    await sidecar.slow.accept()
    assert sidecar.written == []
