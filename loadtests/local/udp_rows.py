"""Datagrams through a UDP exposure against the same two programs over the loopback, in turn."""

from __future__ import annotations

import asyncio
import os
import socket
import sys

from sandlot import AsyncClient, AsyncSandbox, Stdout
from sandlot_grade.report.stats import median

from loadtests.reading import Reading

ROW = "udp_rate"
ROUNDS = 5
_PYTHON = os.path.realpath(sys.executable)  # a virtual environment's may be invisible to sandboxes
_SERVER = """
import socket, sys
server = socket.socket(type=socket.SOCK_DGRAM)
server.bind(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
while True:
    server.sendto(*server.recvfrom(65536))
"""
# 32 datagrams of 100 bytes are under way; a lost one is sent again after 0.1 s without an answer.
_CLIENT = """
import socket, sys, time
client = socket.socket(type=socket.SOCK_DGRAM)
client.settimeout(0.1)
client.connect((sys.argv[1], int(sys.argv[2])))
end, answers, under_way = time.monotonic() + 1.5, 0, 0
while time.monotonic() < end:
    while under_way < 32:
        client.send(bytes(100))
        under_way += 1
    try:
        client.recv(65536)
        answers += 1
        under_way -= 1
    except TimeoutError:
        under_way = 0
print(answers / 1.5)
"""


async def udp(client: AsyncClient) -> Reading:
    """Measure answers per second of one client, through the exposure ÷ to a server beside it."""
    through: list[float] = []
    direct: list[float] = []
    beside = await asyncio.create_subprocess_exec(
        _PYTHON, "-c", _SERVER, str(port := _free_port()), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert beside.stdout is not None
        await beside.stdout.readline()
        async with await AsyncSandbox.create(client=client) as box:
            inside = _free_port()
            process = await box.start([_PYTHON, "-c", _SERVER, str(inside)], stdin=False)
            async for event in process:
                if isinstance(event, Stdout):
                    break
            host, _, exposed = (await box.expose(inside, protocol="udp")).rpartition(":")
            for _ in range(ROUNDS):
                direct.append(await _rate("127.0.0.1", port))
                through.append(await _rate(host, int(exposed)))
            await process.kill()
    finally:
        beside.kill()
        await beside.wait()
    return Reading(
        value=median(through) / median(direct),
        parts={
            "through the exposure": f"{median(through):,.0f}/s",
            "over the loopback": f"{median(direct):,.0f}/s",
        },
    )


async def _rate(host: str, port: int) -> float:
    process = await asyncio.create_subprocess_exec(
        _PYTHON, "-c", _CLIENT, host, str(port), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    return float(output)


def _free_port() -> int:
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]
