"""A gateway's TLS to its sidecars: what a broken stream, a broken handshake and a full log look like from outside."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import pytest_asyncio
import trustme
from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_contract.sidecar import GATEWAY_NAME, SIDECAR_NAME
from sandlot_contract.statuses import Status
from sandlot_contract.template import Template
from sandlot_contract.tls_files import TlsFiles
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.data.bridge import PortListener
from sandlot_gateway.data.conn import Connection
from sandlot_gateway.data.pool import HttpPool
from sandlot_gateway.data.routes import Route
from sandlot_gateway.data.tunnel import open_tunnel
from sandlot_gateway.sidecar_tls import SidecarTls
from sandlot_gateway.sidecars import EndAnswer, Sidecars

from tests import sidecar_certificates as certificates

CA, OTHER = (trustme.CA(key_type=trustme.KeyType.ECDSA) for _ in range(2))


@pytest_asyncio.fixture
async def pool(tmp_path: Path) -> AsyncIterator[HttpPool]:
    pool = HttpPool(tls=SidecarTls(certificates.write(tmp_path / "gateway", CA, GATEWAY_NAME)))
    try:
        yield pool
    finally:
        await pool.close()


def _tunnel(server: socket.socket, context: ssl.SSLContext, end: Callable[[ssl.SSLSocket], object]) -> None:
    """Answer one request for a tunnel with a 101 and some bytes, and end the stream."""
    raw, _ = server.accept()
    with context.wrap_socket(raw, server_side=True) as stream:
        while b"\r\n\r\n" not in stream.recv(65536):
            pass
        stream.sendall(b"HTTP/1.1 101 \r\nConnection: upgrade\r\nUpgrade: sandlot-tcp\r\n\r\nsome bytes")
        end(stream)


@pytest.mark.parametrize("cut_off", [False, True])
async def test_a_tunnel_that_was_cut_off_does_not_look_like_its_end(
    pool: HttpPool, tmp_path: Path, *, cut_off: bool
) -> None:
    files = TlsFiles(
        str(certificates.write(tmp_path / "sidecar", CA, SIDECAR_NAME)), failing=lambda reason: None
    )
    server = socket.create_server(("127.0.0.1", 0))
    address = f"tls:127.0.0.1:{server.getsockname()[1]}"
    route = Route(SandboxId("sb"), "tenant", address, "token", Status.RUNNING)

    async def tunnel() -> Connection:
        return await open_tunnel(pool=pool, route=route, port=7000)

    def end(stream: ssl.SSLSocket) -> None:
        if not cut_off:
            stream.unwrap()
        stream.shutdown(socket.SHUT_WR)  # of the TCP connection

    listener = PortListener(tunnel)
    with server, ThreadPoolExecutor(1) as threads:
        serving = asyncio.get_running_loop().run_in_executor(threads, _tunnel, server, files.server(), end)
        reader, writer = await asyncio.open_connection("127.0.0.1", await listener.open("127.0.0.1", 0))
        try:
            if cut_off:
                with pytest.raises(ConnectionResetError):
                    await reader.read()
            else:
                writer.write_eof()  # `unwrap` waits for it
                assert await reader.read() == b"some bytes"
            await serving
        finally:
            writer.close()
            await listener.close()


async def test_a_client_of_a_tunnel_that_resets_is_no_error_of_the_gateway(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gc.collect()  # what earlier tests have left
    caplog.clear()
    reached, over = asyncio.Event(), asyncio.Event()
    pool = HttpPool()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 \r\nConnection: upgrade\r\nUpgrade: sandlot-tcp\r\n\r\n")
        reached.set()
        with contextlib.suppress(ConnectionResetError):  # the gateway passes the reset on
            await reader.read()
        over.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    route = Route(SandboxId("sb"), "tenant", address, "token", Status.RUNNING)

    async def tunnel() -> Connection:
        return await open_tunnel(pool=pool, route=route, port=7000)

    listener = PortListener(tunnel)
    client = socket.create_connection(("127.0.0.1", await listener.open("127.0.0.1", 0)))
    await reached.wait()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()  # by a RST
    await over.wait()
    await listener.close()
    server.close()
    await server.wait_closed()
    await pool.close()
    gc.collect()  # a failed task tells of it when it is collected
    assert not [one for one in caplog.records if one.name == "asyncio"]


async def test_strangers_do_not_hide_from_the_log_why_sidecars_cannot_be_called(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tls = SidecarTls(certificates.write(tmp_path / "gateway", CA, GATEWAY_NAME))
    server = await asyncio.get_running_loop().create_server(
        lambda: tls.accepted(asyncio.Protocol()), "127.0.0.1", 0
    )
    stranger = TlsFiles(
        str(certificates.write(tmp_path / "stranger", OTHER, trusted=(CA,))),
        failing=lambda reason: None,
    )
    port = server.sockets[0].getsockname()[1]
    async with server:
        for _ in range(2):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=stranger.client(), server_hostname=GATEWAY_NAME
            )
            with contextlib.suppress(OSError):  # an alert, or an end
                await reader.read()
            writer.close()
    for _ in range(2):
        tls.dial_failed("tls:10.0.0.7:8700", "our certificate has expired")
    assert caplog.text.count("refused the TLS connection") == 1
    assert caplog.text.count("our certificate has expired") == 1


@pytest.mark.parametrize("has_files", [False, True])
async def test_a_sidecar_that_refuses_this_gateway_s_certificate_is_not_taken_for_dead(
    tmp_path: Path, *, has_files: bool
) -> None:
    stranger = certificates.write(tmp_path / "stranger", OTHER, GATEWAY_NAME, trusted=(CA,))
    pool = HttpPool(tls=SidecarTls(stranger) if has_files else None)
    files = certificates.write(tmp_path / "sidecar", CA, SIDECAR_NAME)
    context = TlsFiles(str(files), failing=lambda reason: None).server()
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    sidecars = Sidecars(pool)
    instance = Instance(InstanceId("i"), Template(image="x"), f"tls:127.0.0.1:{port}", "token", "p")
    try:
        assert await sidecars.end_unclaimed(instance) is EndAnswer.UNTRUSTED
        if has_files:
            server.close()
            await server.wait_closed()
            assert await sidecars.end_unclaimed(instance) is EndAnswer.UNKNOWN
    finally:
        server.close()
        await pool.close()
