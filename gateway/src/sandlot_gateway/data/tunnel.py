"""Opens a connection to a port inside a sandbox, through its sidecar's upgrades `/v1/tcp` and `/v1/udp`."""

from __future__ import annotations

import asyncio
from typing import Literal

from sandlot_contract.sidecar import TCP_UPGRADE, UDP_UPGRADE

from .conn import Connection
from .errors import DialError, UpstreamError
from .outgoing import request_bytes
from .pool import HttpPool
from .routes import Route
from .sidecar_requests import json_object

TunnelKind = Literal["tcp", "udp"]
_UPGRADES: dict[TunnelKind, str] = {"tcp": TCP_UPGRADE, "udp": UDP_UPGRADE}

ANSWER_TIMEOUT = 30.0  # seconds; the sidecar connects to its own loopback


class Refused(DialError):
    """Raised when nothing listens on that port of a running sandbox."""


def tunnel_key(route: Route, port: int) -> str:
    """Return the pool's key for keep-alive connections to one port of this sandbox."""
    return f"{route.sandbox_id}:{port}@{route.address}"


async def open_http(*, pool: HttpPool, route: Route, port: int) -> Connection:
    """Open a connection for HTTP to an app. Raises as `open_tunnel` does."""
    connection = await open_tunnel(pool=pool, route=route, port=port)
    connection.reset_to_http()
    return connection


async def open_tunnel(*, pool: HttpPool, route: Route, port: int, kind: TunnelKind = "tcp") -> Connection:
    """Open a duplex to `127.0.0.1:port` in the sandbox, of bytes or framed datagrams; the caller closes it.

    Raises DialError or Refused: nothing was sent to the port.
    """
    connection = await pool.acquire(route.address, known_alive=True)
    try:
        headers = [
            ("authorization", f"Bearer {route.token}"),
            ("connection", "upgrade"),
            ("upgrade", _UPGRADES[kind]),
        ]
        request = request_bytes("POST", f"/v1/{kind}?port={port}", host=b"sidecar", headers=headers)
        connection.begin(request, upgrade=True)
        async with asyncio.timeout(ANSWER_TIMEOUT):
            response = await connection.head()
            if response.upgraded:
                pool.detach(connection)
                return connection
            body = await connection.read()
    except (UpstreamError, TimeoutError) as error:
        pool.release(connection, reusable=False)
        raise DialError(f"port {port}", str(error) or "timed out", final=True) from error
    except BaseException:
        pool.release(connection, reusable=False)
        raise
    pool.release(connection, reusable=False)
    code = json_object(body).get("error")
    if code == "refused":
        raise Refused(f"port {port}", "nothing listens on it", final=True)
    reason = f"the sidecar answered {response.status} {code or ''}".rstrip()
    raise DialError(f"port {port}", reason, final=True)
