"""A TLS stream as a server: a client that does not go on with its handshake is not kept."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest
import trustme
from sandlot_contract import tls_stream
from sandlot_contract.tls_files import TlsFiles
from sandlot_contract.tls_stream import TlsStream

from tests import sidecar_certificates as certificates

CA = trustme.CA(key_type=trustme.KeyType.ECDSA)


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01"], ids=["nothing", "the begin of a ClientHello"])
async def test_a_handshake_that_goes_on_for_too_long_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(tls_stream, "HANDSHAKE_TIMEOUT", 0.05)
    context = TlsFiles(str(certificates.write(tmp_path, CA)), failing=lambda reason: None).server()
    told: list[str] = []

    def failed(reason: str, peer: Any) -> None:
        told.append(reason)

    server = await asyncio.get_running_loop().create_server(
        lambda: TlsStream(asyncio.Protocol(), context, client_name="gateway", failed=failed), "127.0.0.1", 0
    )
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        try:
            writer.write(sent)
            async with asyncio.timeout(10):
                with contextlib.suppress(ConnectionResetError):  # the timer may come before what was sent
                    assert await reader.read() == b""
        finally:
            writer.close()
    assert told == ["the handshake took longer than 0.05 s"]
