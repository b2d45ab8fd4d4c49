"""Opens a raw connection to a port inside a sandbox, through its sidecar's `/v1/tcp` upgrade."""

from __future__ import annotations

import asyncio

import msgspec

from .conn import Connection
from .dial import DialSettings, dial
from .errors import DialError, UpstreamError
from .pool import request_bytes
from .routes import Route


class Refused(DialError):
    """The sandbox runs, and nothing listens on that port in it."""


async def open_tunnel(*, route: Route, port: int, settings: DialSettings) -> Connection:
    """A raw duplex to `127.0.0.1:port` in the sandbox; raises DialError or Refused: nothing was sent to the port."""
    connection = await dial(route.address, settings=settings)
    try:
        headers = [
            ("authorization", f"Bearer {route.token}"),
            ("connection", "upgrade"),
            ("upgrade", "sandlot-tcp"),
        ]
        connection.begin(request_bytes("POST", f"/v1/tcp?port={port}", host=b"sidecar", headers=headers))
        async with asyncio.timeout(settings.timeout):
            response = await connection.head()
            if response.upgraded:
                return connection
            body = await connection.read()
    except (UpstreamError, TimeoutError) as error:
        connection.close()
        raise DialError(f"port {port}", str(error) or "timed out") from error
    except BaseException:
        connection.close()
        raise
    connection.close()
    try:
        document = msgspec.json.decode(body)
    except msgspec.DecodeError:
        document = {}
    code = document.get("error") if isinstance(document, dict) else None
    if code == "refused":
        raise Refused(f"port {port}", "nothing listens on it")
    raise DialError(f"port {port}", f"the sidecar answered {response.status} {code or ''}".rstrip())
