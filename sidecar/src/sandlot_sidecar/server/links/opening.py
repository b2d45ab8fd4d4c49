"""Has the gateway open a connection to a service of the sandbox's group."""

from __future__ import annotations

import asyncio
import socket
import time

from sandlot_contract.headers import GATEWAY, SIGNATURE
from sandlot_contract.sidecar import LINK_PATH, TCP_UPGRADE

from ..gateway import ATTEMPT_TIMEOUT, Gateway, GatewayError

TYPE_CHECKING = False
if TYPE_CHECKING:
    Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

PATIENCE = 10.0  # seconds in which to reach a gateway that knows the group; one may have ended a moment ago
ANSWER_TIMEOUT = 15.0  # longer than a gateway takes to connect to a service
FIRST_PAUSE, LAST_PAUSE = 0.2, 1.6


class _NotYet(Exception):
    """A gateway has answered that does not know the group yet."""


class _Unreachable(_NotYet):
    """No gateway has answered."""


async def link(gateway: Gateway, *, sandbox_id: str, name: str, port: int) -> Streams:
    """Return a connection to a port of a service. Raises GatewayError if there is none; nothing was sent then."""
    until = time.monotonic() + PATIENCE
    target = f"{LINK_PATH}?sandbox={sandbox_id}&service={name}&port={port}"
    pause = FIRST_PAUSE
    while True:
        try:
            return await _attempt(gateway, target)
        except _NotYet as error:
            if isinstance(error, _Unreachable):
                gateway.unreachable()
            if time.monotonic() + pause > until:
                raise GatewayError(str(error)) from error
            await asyncio.sleep(pause)
            pause = min(2 * pause, LAST_PAUSE)


def _request(gateway: Gateway, target: str) -> bytes:
    # The time: what another program at the gateway's address reads of it is soon of no use.
    path = f"{target}&at={int(time.time())}"
    headers = {
        "Host": gateway.target.host,
        **gateway.identity,
        SIGNATURE: gateway.signature(path.encode("latin-1")),
        "Connection": "Upgrade",
        "Upgrade": TCP_UPGRADE,
    }
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1")


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    """Notice after 30 s that the gateway's machine is gone."""
    sock = writer.get_extra_info("socket")
    if sock.family == socket.AF_UNIX or sock.fileno() < 0:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 15), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3)):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


async def _attempt(gateway: Gateway, target: str) -> Streams:
    try:
        if gateway.must_look_up:
            await gateway.look_up()
        async with asyncio.timeout(ATTEMPT_TIMEOUT):
            reader, writer = await gateway.connect()
    except (OSError, TimeoutError, ValueError, GatewayError) as error:
        raise _Unreachable(str(gateway.failure(error))) from error
    try:
        _keep_alive(writer)
        writer.write(_request(gateway, target))
        async with asyncio.timeout(ANSWER_TIMEOUT):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        proof = f"{GATEWAY}: {gateway.proof}".lower()
        if proof not in map(str.lower, head):
            raise _Unreachable("the answer is not a gateway's")
        gateway.reached()
        status = head[0].split(" ")[1:2]
        if status == ["503"]:
            raise _NotYet("no gateway knows the service yet")
        if status != ["101"]:
            raise GatewayError(f"the gateway answered {' '.join(head[0].split(' ')[1:])[:200]}")
    except (OSError, TimeoutError, EOFError, asyncio.LimitOverrunError) as error:
        writer.transport.abort()
        raise _Unreachable(str(gateway.failure(error))) from error
    except BaseException:
        writer.transport.abort()
        raise
    return reader, writer
