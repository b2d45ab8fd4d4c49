"""Has the gateway open a connection to a service of the sandbox's group."""

from __future__ import annotations

import asyncio
import time

from sandlot_contract.headers import GATEWAY
from sandlot_contract.sidecar import LINK_PATH, TCP_UPGRADE

from ..gateway import ATTEMPT_TIMEOUT, Gateway, GatewayError

TYPE_CHECKING = False
if TYPE_CHECKING:
    Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

PATIENCE = 10.0  # seconds in which to reach a gateway that knows the group; one may have ended a moment ago
ANSWER_TIMEOUT = 15.0  # longer than a gateway takes to connect to a service
_PAUSE = 0.2


class _NotYet(Exception):
    """No gateway has answered, or one that does not know the group yet."""


async def link(gateway: Gateway, *, sandbox_id: str, name: str, port: int) -> Streams:
    """Return a connection to a port of a service. Raises GatewayError if there is none; nothing was sent then."""
    until = time.monotonic() + PATIENCE
    request = _request(gateway, f"{LINK_PATH}?sandbox={sandbox_id}&service={name}&port={port}")
    while True:
        try:
            streams = await _attempt(gateway, request)
        except _NotYet as error:
            gateway.unreachable()
            if time.monotonic() + _PAUSE > until:
                raise GatewayError(str(error)) from error
            await asyncio.sleep(_PAUSE)
        else:
            gateway.reached()
            return streams


def _request(gateway: Gateway, path: str) -> bytes:
    headers = {
        "Host": gateway.target.host,
        **gateway.identity,
        "Connection": "Upgrade",
        "Upgrade": TCP_UPGRADE,
    }
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1")


async def _attempt(gateway: Gateway, request: bytes) -> Streams:
    try:
        if gateway.must_look_up:
            await gateway.look_up()
        async with asyncio.timeout(ATTEMPT_TIMEOUT):
            reader, writer = await gateway.connect()
    except (OSError, TimeoutError, ValueError, GatewayError) as error:
        raise _NotYet(str(gateway.failure(error))) from error
    try:
        writer.write(request)
        async with asyncio.timeout(ANSWER_TIMEOUT):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        proof = f"{GATEWAY}: {gateway.proof}".lower()
        if proof not in map(str.lower, head):
            raise _NotYet("the answer is not a gateway's")
        status = head[0].split(" ")[1:2]
        if status == ["503"]:
            raise _NotYet("no gateway knows the service yet")
        if status != ["101"]:
            raise GatewayError(f"the gateway answered {' '.join(head[0].split(' ')[1:])[:200]}")
    except (OSError, TimeoutError, EOFError, asyncio.LimitOverrunError) as error:
        writer.transport.abort()
        raise _NotYet(str(gateway.failure(error))) from error
    except BaseException:
        writer.transport.abort()
        raise
    return reader, writer
