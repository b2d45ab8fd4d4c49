"""What a gateway that starts learns from a sidecar of an earlier one."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from sandlot_contract.ids import InstanceId
from sandlot_contract.template import Template
from sandlot_gateway.backends.local.discovery import Living, examine
from sandlot_gateway.backends.local.layout import InstanceDir
from sandlot_gateway.backends.local.processes import key_of
from sandlot_gateway.backends.local.records import Record
from sandlot_gateway.data.pool import HttpPool

CLAIMING = {"phase": "warm", "claiming": True, "sandbox_id": None}
CLAIMED = {"phase": "claimed", "claiming": False, "sandbox_id": "sb-1"}


async def test_a_claim_that_is_being_applied_is_waited_for(tmp_path: Path) -> None:
    """The instance was taken for free, and the retry of its create got another one."""
    left: list[dict[str, Any]] = [CLAIMING, CLAIMED]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = json.dumps(left.pop(0)).encode()
        head = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        writer.write(head + body)
        writer.close()

    directory = InstanceDir(tmp_path)
    Record(InstanceId("i-1"), Template("host"), process=key_of(os.getpid())).save(directory.record)
    server = await asyncio.start_unix_server(serve, str(directory.socket))
    pool = HttpPool()
    try:
        found = await examine(directory, token="secret", pool=pool, patience=20.0)
    finally:
        await pool.close()
        server.close()
    assert isinstance(found, Living)
    os.close(found.pidfd)
    assert found.state == CLAIMED
