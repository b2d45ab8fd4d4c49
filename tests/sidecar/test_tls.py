"""Encrypted calls in both directions: who is refused, why, for how long, and that all the rest works as without."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import trustme
from sandlot_contract import tls_stream
from sandlot_contract.ids import SandboxId
from sandlot_contract.sidecar import GATEWAY_NAME, SIDECAR_NAME
from sandlot_contract.statuses import Status
from sandlot_contract.tls_files import BadTlsFiles, TlsFiles
from sandlot_controller.act.sidecars import Sidecars, SidecarUnreachable
from sandlot_gateway.data.errors import DialError
from sandlot_gateway.data.pool import HttpPool
from sandlot_gateway.data.routes import Route
from sandlot_gateway.data.tunnel import open_tunnel
from sandlot_gateway.sidecar_tls import SidecarTls
from sandlot_sidecar.server.untrusted_connections import MOST_INSIDE

from tests import sidecar_certificates as certificates
from tests.ports import free_port
from tests.sidecar.tls_sidecar import CA, TlsSidecar
from tests.sidecar.webhook_receiver import INSTANCE_TOKEN
from tests.waiting import SECONDS, until

pytestmark = pytest.mark.root
OTHER = trustme.CA(key_type=trustme.KeyType.ECDSA)


@pytest_asyncio.fixture
async def box(tmp_path: Path) -> AsyncIterator[TlsSidecar]:
    box = TlsSidecar(tmp_path)
    try:
        await box.start()
        await box.claim()
        yield box
    finally:
        await box.close()


async def dial_with(box: TlsSidecar, files: Path) -> str:
    """Ask the sidecar with these files; return the reason why no connection came about, '' if one did."""
    pool = HttpPool(tls=SidecarTls(files))
    try:
        await pool.fetch(box.address, "GET", "/v1/healthz")
    except DialError as error:
        assert error.refused, error
        return error.reason
    finally:
        await pool.close()
    return ""


async def test_commands_files_and_streams_work_over_one_kept_connection(box: TlsSidecar) -> None:
    assert (await box.exec("echo out; exit 3"))["exit_code"] == 3
    blob = os.urandom(5 << 20)
    assert (await box.call("PUT", "/v1/files?path=/tmp/blob", content=blob)).status_code == 200
    assert (await box.call("GET", "/v1/files?path=/tmp/blob")).content == blob
    await box.op("for i in 1 2 3; do echo $i; done", id="op1")
    kinds = [kind for kind, _ in await box.frames("/v1/ops/op1/stream")]
    assert kinds[-1] == "x"
    assert box.pool.idle_connections == 1
    assert box.webhooks.events[0]["address"] == box.address
    assert box.webhooks.events[0]["event"] == "ready"


async def test_a_tunnel_passes_on_a_half_close(box: TlsSidecar) -> None:
    port = free_port()  # in the machine's network, as the sandbox has it here
    server = (
        f"import socket; s = socket.create_server(('127.0.0.1', {port})); print(flush=True); c, _ = s.accept();"
        "n = sum(len(d) for d in iter(lambda: c.recv(65536), b'')); c.sendall(b'%d' % n); c.close()"
    )
    await box.op(["python3", "-c", server], id="server")
    await until(lambda: _output(box, "server"))
    route = Route(SandboxId("sb-test"), "tenant-a", box.address, box.token, Status.RUNNING)
    connection = await open_tunnel(pool=box.pool, route=route, port=port)
    for _ in range(64):
        connection.write(b"x" * 65536)
        await connection.drain()
    connection.write_eof()
    told = b""
    while piece := await connection.read():
        told += piece
    assert told == b"%d" % (64 * 65536)
    connection.close()


async def _output(box: TlsSidecar, op: str) -> bytes:
    return (await box.call("GET", f"/v1/ops/{op}/output?stream=stdout")).content


async def test_strangers_are_refused_and_both_sides_say_why(box: TlsSidecar, tmp_path: Path) -> None:
    wrong_ca = certificates.write(tmp_path / "1", OTHER, GATEWAY_NAME, trusted=(CA,))
    assert "does not have the CA of our certificate" in await dial_with(box, wrong_ca)
    await until(lambda: "not of a CA in our ca.crt" in box.log())  # it writes once the other side knows
    distrusting = certificates.write(tmp_path / "2", CA, GATEWAY_NAME, trusted=(OTHER,))
    assert "the peer's certificate is not of a CA in our ca.crt" in await dial_with(box, distrusting)
    late = certificates.write(tmp_path / "3", CA, GATEWAY_NAME, not_after=certificates.expired())
    assert "our certificate has expired" in await dial_with(box, late)
    another_sidecar = certificates.write(tmp_path / "4", CA, SIDECAR_NAME)
    assert "after our certificate" in await dial_with(box, another_sidecar)
    reader, writer = await asyncio.open_connection("127.0.0.1", box.port)
    writer.write(b"GET /v1/healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"HTTP" not in await reader.read()
    writer.close()
    pool = HttpPool()
    with pytest.raises(DialError, match="--sidecar-tls-dir"):
        await pool.fetch(box.address, "GET", "/v1/healthz")
    await pool.close()


async def test_webhooks_of_sidecars_without_tls_are_heard_and_of_strangers_with_it_are_not(
    box: TlsSidecar, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    post = b'POST /internal/sidecar HTTP/1.1\r\nContent-Length: 19\r\n\r\n{"event":"earlier"}'
    port = box.listener.port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(post)
    assert (await reader.read()).startswith(b"HTTP/1.1 200")
    writer.close()
    assert box.webhooks.events[-1] == {"event": "earlier"}
    files = certificates.write(tmp_path / "stranger", OTHER, SIDECAR_NAME, trusted=(CA,))
    context = TlsFiles(str(files), failing=lambda reason: None).client()
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname=GATEWAY_NAME
    )
    writer.write(post)
    with pytest.raises(ssl.SSLError, match=r"(?i)unknown.ca"):
        await reader.read()
    writer.close()
    await until(lambda: "not of a CA in our ca.crt" in caplog.text)


async def test_the_controller_calls_it_as_well(box: TlsSidecar) -> None:
    able = Sidecars(port=box.port, tls=TlsFiles(str(box.gateway_files), failing=lambda reason: None))
    unable = Sidecars(port=box.port)
    try:
        owner = await able.owner("tls:127.0.0.1", token=INSTANCE_TOKEN)
        assert owner is not None
        assert owner.sandbox_id == "sb-test"
        with pytest.raises(SidecarUnreachable, match="SANDLOT_SIDECAR_TLS_DIR"):
            await unable.owner("tls:127.0.0.1", token=INSTANCE_TOKEN)
    finally:
        await able.close()
        await unable.close()


async def test_no_certificate_is_refused(box: TlsSidecar) -> None:
    context = ssl.create_default_context(cafile=str(box.files / "ca.crt"))
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", box.port, ssl=context, server_hostname=SIDECAR_NAME
    )
    writer.write(b"GET /v1/healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    with pytest.raises(ssl.SSLError, match=r"(?i)certificate.required"):
        await reader.read()
    writer.close()


async def test_renewed_files_are_used_for_new_connections_without_a_restart(
    box: TlsSidecar, tmp_path: Path
) -> None:
    assert (await box.exec("echo before"))["stdout"] == "before\n"
    # A rotation of the CA: first both trust both, then each gets its new certificate, then the old CA goes.
    for trusted, issuer in (((CA, OTHER), CA), ((CA, OTHER), OTHER), ((OTHER,), OTHER)):
        certificates.write(box.files, issuer, SIDECAR_NAME, trusted=trusted)
        assert await dial_with(box, box.gateway_files) == ""
        certificates.write(box.gateway_files, issuer, GATEWAY_NAME, trusted=trusted)
        assert await dial_with(box, box.gateway_files) == ""
    old = certificates.write(tmp_path / "old", CA, GATEWAY_NAME, trusted=(OTHER,))
    assert "does not have the CA" in await dial_with(box, old)
    assert (await box.exec("echo kept"))["stdout"] == "kept\n"  # over the connection of before
    (box.files / "tls.key").write_text("broken")
    assert await dial_with(box, box.gateway_files) == ""
    assert '"state": "bad"' in box.log()
    certificates.write(box.files, OTHER, SIDECAR_NAME)
    assert await dial_with(box, box.gateway_files) == ""
    await box.instance("POST", "/v1/end", json={"verdict": "deleted"})
    await box.webhooks.wait("ended")  # each webhook is a new connection


async def test_half_open_handshakes_hold_up_nobody_and_keep_nothing(box: TlsSidecar) -> None:
    await box.exec("true")
    before = box.descriptors()
    opened = [await asyncio.open_connection("127.0.0.1", box.port) for _ in range(MOST_INSIDE + 8)]
    for _, writer in opened:
        writer.write(b"\x16\x03\x01")  # the begin of a ClientHello
    ends = [asyncio.create_task(reader.read()) for reader, _ in opened]
    assert (await box.exec("echo served"))["stdout"] == "served\n"
    for _, writer in opened:
        writer.close()
    await asyncio.gather(*ends, return_exceptions=True)  # an end of file or a reset
    await until(lambda: _no_more(box, before))


async def _no_more(box: TlsSidecar, before: tuple[int, int]) -> bool:
    """Fewer are no leak: a runner that nobody has needed for a while goes."""
    return all(now <= then for now, then in zip(box.descriptors(), before, strict=True))


async def test_a_dial_of_a_peer_that_never_shakes_hands_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_stream, "HANDSHAKE_TIMEOUT", 0.2)
    files = certificates.write(tmp_path / "gateway", CA)
    closed = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100_000)
        await reader.read()
        closed.set()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    address = f"tls:127.0.0.1:{server.sockets[0].getsockname()[1]}"
    pool = HttpPool(tls=SidecarTls(files))
    try:
        with pytest.raises(DialError, match="handshake took longer"):
            await pool.fetch(address, "GET", "/", timeout=50.0)
        async with asyncio.timeout(SECONDS):
            await closed.wait()
    finally:
        await pool.close()
        server.close()
        await server.wait_closed()


def test_bad_files_are_told_with_their_directory(tmp_path: Path) -> None:
    with pytest.raises(BadTlsFiles, match=str(tmp_path)):
        TlsFiles(str(tmp_path), failing=lambda reason: None)
    certificates.write(tmp_path / "one", CA)
    certificates.write(tmp_path / "two", CA)
    os.replace(tmp_path / "two" / "tls.key", tmp_path / "one" / "tls.key")
    with pytest.raises(BadTlsFiles, match="KEY_VALUES_MISMATCH"):
        TlsFiles(str(tmp_path / "one"), failing=lambda reason: None)
