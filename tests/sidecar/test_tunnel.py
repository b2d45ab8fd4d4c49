"""A TCP connection to a port inside the sandbox, through its sidecar."""

from __future__ import annotations

import asyncio
import os

import pytest

from tests.ports import free_ports
from tests.sidecar.support import Sidecar
from tests.waiting import until

pytestmark = pytest.mark.root


async def test_tunnel(box: Sidecar) -> None:
    # In the machine's network, as the sandbox has it here.
    port, closed = free_ports(2)
    server = (
        f"import socket\ns=socket.socket(); s.setsockopt(1,2,1); s.bind(('127.0.0.1',{port})); s.listen()\nprint('on',flush=True)\n"
        "while 1:\n c,_=s.accept(); d=b''\n while p:=c.recv(65536): d+=p\n c.sendall(d[::-1]); c.close()"
    )
    await box.call("PUT", "/v1/files?path=/echo.py", content=server.encode())
    await box.op(["python3", "/echo.py"], id="echo", detach=True)
    await until(lambda: printed(box, "echo", "on\n"))
    reader, writer = await box.raw()
    head = b"POST /v1/tcp?port=%d HTTP/1.1\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: sandlot-tcp\r\n\r\n"
    writer.write(head % (port, box.token.encode()) + b"early ")
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
    message = os.urandom(2_000_000)
    writer.write(message)
    writer.write_eof()
    assert await asyncio.wait_for(reader.read(-1), 50) == (b"early " + message)[::-1]
    writer.close()
    reader, writer = await box.raw()
    writer.write(head % (closed, box.token.encode()))
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 502 ")
    writer.close()
    plain = await box.call("POST", f"/v1/tcp?port={port}")
    assert plain.status_code == 400


async def printed(box: Sidecar, op_id: str, text: str) -> bool:
    return (await box.call("GET", f"/v1/ops/{op_id}/output")).text == text
