"""The gateway over TLS: HTTP/1.1 and HTTP/2 by ALPN, Prime's own client through it, and what is said when it cannot."""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import websockets
from connectrpc.code import Code
from pyqwest import Client, HTTPTransport, HTTPVersion
from sandlot_gateway.rpc.generated.command_session_connect import CommandSessionClient

from tests.certificates import Certificate, issued
from tests.leaks import no_leaks
from tests.ports import free_port
from tests.prime.conftest import client_python, run_client
from tests.prime.server import Server
from tests.prime.trust import trusting
from tests.prime_rpc.conftest import make_box
from tests.prime_rpc.support import Box, Seen, bash, new_session, refused
from tests.stack import Stack

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(300)]


@dataclass
class Secure:
    """A stack with TLS."""

    stack: Stack
    url: str
    certificate: Certificate

    @property
    def authority_file(self) -> Path:
        return self.certificate.authority

    def client(self, *, http2: bool) -> httpx.AsyncClient:
        return self.certificate.client(self.url, api_key=self.stack.api_key, http2=http2)


@pytest.fixture(scope="module")
def secure() -> Iterator[Secure]:
    with tempfile.TemporaryDirectory(prefix="sandlot-") as directory:
        home = Path(directory)
        certificate = issued(home, "localhost", "127.0.0.1")
        port = free_port()
        options = ("--tls-cert", str(certificate.chain), "--tls-key", str(certificate.key))
        with (
            no_leaks(marker=directory, descriptors=False),
            Stack(home / "state", options=(*options, "--tls-port", str(port), "--pool", "warm=2")) as stack,
        ):
            yield Secure(stack, f"https://localhost:{port}", certificate)


@pytest.fixture(scope="module")
def box(secure: Secure) -> Box:
    made = make_box(secure.stack)
    made.auth = {**made.auth, "gateway_url": secure.url}
    return made


def plain_box(box: Box) -> Box:
    """The same sandbox by the plain port."""
    auth = {**box.auth, "gateway_url": box.url}
    return Box(url=box.url, api_key=box.api_key, auth=auth, sandbox_id=box.sandbox_id)


@pytest.mark.parametrize("http2", [False, True])
async def test_both_versions_of_http(secure: Secure, box: Box, http2: bool):
    async with secure.client(http2=http2) as client:
        answer = await client.get("/api/v1/sandbox")
        assert answer.http_version == ("HTTP/2" if http2 else "HTTP/1.1")
        assert box.sandbox_id in [each["id"] for each in answer.json()["sandboxes"]]
        auth = (await client.post(f"/api/v1/sandbox/{box.sandbox_id}/auth")).json()
        assert auth["gateway_url"] == secure.url
        data = b"x" * 5_000_000
        path = f"/sbx/{box.sandbox_id}/files?path=/tmp/big"
        assert (await client.put(path, content=data)).json()["size"] == len(data)
        assert (await client.get(path)).content == data
        ran = await client.post(f"/sbx/{box.sandbox_id}/exec", json={"command": "echo hi"})
        assert ran.json()["stdout"] == "hi\n"


async def test_leaving_kills_a_command_over_http2(secure: Secure, box: Box):
    """The stream is reset, the connection stays."""
    transport = HTTPTransport(tls_ca_cert=secure.authority_file.read_bytes(), http_version=HTTPVersion.HTTP2)
    client = CommandSessionClient(box.base, http_client=Client(transport=transport))
    stream, seen = client.start(bash("exec sleep 4101"), headers=box.headers), Seen()
    await seen.begin(stream)
    plain = plain_box(box)
    await plain.until_running("sleep 4101", 1)
    await stream.aclose()  # type: ignore[attr-defined]
    await plain.until_running("sleep 4101", 0)
    await transport.aclose()


async def test_client_without_a_word_kills_its_command(secure: Secure, box: Box):
    async with secure.client(http2=True) as client:
        body = {"command": "exec sleep 4103"}
        running = asyncio.create_task(client.post(f"/sbx/{box.sandbox_id}/exec", json=body))
        await plain_box(box).until_running("sleep 4103", 1)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    await plain_box(box).until_running("sleep 4103", 0)


async def test_sessions_over_http2(secure: Secure, box: Box):
    """120 at once on one connection, which is more than servers commonly let pass."""
    transport = HTTPTransport(tls_ca_cert=secure.authority_file.read_bytes(), http_version=HTTPVersion.HTTP2)
    client = CommandSessionClient(box.base, http_client=Client(transport=transport))
    session = new_session()
    stream, seen = (
        client.start(bash("read x; echo $x", session_uuid=session, stdin=True), headers=box.headers),
        Seen(),
    )
    await seen.begin(stream)

    async def one(number: int) -> bytes:
        return (await Seen().read(client.start(bash(f"echo {number}"), headers=box.headers))).stdout

    said = await asyncio.gather(*map(one, range(120)))
    assert said == [b"%d\n" % number for number in range(120)]
    with refused(Code.DEADLINE_EXCEEDED):
        await Seen().read(client.start(bash("sleep 4102"), headers=box.headers, timeout_ms=300))
    plain = plain_box(box)
    await plain.until_running("sleep 4102", 0)
    await plain.write(session, b"through another door\n")
    await seen.read(stream)
    assert seen.stdout == b"through another door\n"
    await transport.aclose()


async def test_terminal_over_tls(secure: Secure, box: Box):
    trust = ssl.create_default_context(cafile=str(secure.authority_file))
    address = f"wss://{secure.url.removeprefix('https://')}/sbx/{box.sandbox_id}/terminal"
    async with websockets.connect(f"{address}?command=echo%20hi&token={box.token}", ssl=trust) as terminal:
        said = b""
        async for message in terminal:
            said += message if isinstance(message, bytes) else b""
    assert said == b"hi\r\n"


@pytest.mark.clients
def test_primes_client_through_https(secure: Secure, tmp_path: Path):
    python = client_python("prime-sandboxes", "0.5.1")
    server = Server(
        url=secure.url,
        api_key=secure.stack.api_key,
        image="host",
        log=secure.stack.log,
        environment=trusting(python, authority=secure.authority_file, directory=tmp_path),
    )
    script = Path(__file__).with_name("client_scripts.py")
    seen = run_client(server, script, "live", package="prime-sandboxes", version="0.5.1")
    assert (seen["code"], seen["trapped"], seen["terminate"], seen["kill"]) == (5, 6, -15, -9)
    assert seen["megabyte"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--tls-cert", "/none.pem"), "--tls-key"),
        (("--tls-cert", "/none.pem", "--tls-key", "/none.key"), "/none.pem"),
    ],
)
def test_certificate_that_cannot_be_used(options: tuple[str, ...], said: str):
    with tempfile.TemporaryDirectory(prefix="sandlot-") as directory:
        stack = Stack(Path(directory) / "state", options=options)
        try:
            with pytest.raises(AssertionError, match=said):
                stack.start()
        finally:
            stack.__exit__(None, None, None)
