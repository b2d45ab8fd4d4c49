"""The client on uvloop, which trainers run on."""

from __future__ import annotations

import subprocess
import sys

from tests.ports import free_port

_CONNECT = """
import asyncio, os, socket, sys, uvloop
from sandlot._protocol.http1 import Origin
from sandlot._transport_async.sockets import connect

async def main():
    port = int(sys.argv[1])
    server = socket.create_server(("127.0.0.1", port))
    loop = asyncio.get_running_loop()
    (await connect(loop, Origin(False, "127.0.0.1", port))).close()
    server.close()
    try:
        await connect(loop, Origin(False, "127.0.0.1", port))
    except ConnectionRefusedError:
        print(len(os.listdir("/proc/self/task")))

uvloop.run(main())
"""


def test_a_connection_to_an_address_needs_no_thread() -> None:
    """Threads that wait for a name server would keep it waiting. In a process of its own: threads stay."""
    done = subprocess.run(
        [sys.executable, "-c", _CONNECT, str(free_port())],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("1\n", "")
