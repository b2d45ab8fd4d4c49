"""Finds out where a cache is and whether it answers."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import Executor
from functools import partial

_SECONDS = 5.0


async def answering(name: str, port: int, lookups: Executor) -> str | None:
    """Return the URL by its address, at which a registry answers; None: it has none, or nothing answers there.

    By address, since the node's containerd does not use the cluster's DNS. `lookups`: its threads look the name up.
    """
    try:
        async with asyncio.timeout(_SECONDS):
            loop = asyncio.get_running_loop()
            look_up = partial(socket.getaddrinfo, name, port, type=socket.SOCK_STREAM)
            found = await loop.run_in_executor(lookups, look_up)
            address = str(found[0][4][0])
            if not await _answers(address, port):
                return None
    # An answer that is no HTTP is none.
    except (OSError, TimeoutError, ValueError):
        return None
    host = f"[{address}]" if ":" in address else address
    return f"http://{host}:{port}"


async def _answers(address: str, port: int) -> bool:
    reader, writer = await asyncio.open_connection(address, port)
    try:
        writer.write(b"GET /v2/ HTTP/1.1\r\nHost: registry-cache\r\nConnection: close\r\n\r\n")
        await writer.drain()
        status = await reader.readline()
        return status.split()[1:2] == [b"200"]
    finally:
        writer.close()
