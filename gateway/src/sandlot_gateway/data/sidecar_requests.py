"""The requests to a sandbox's sidecar that one call of a client makes, whichever wire the client speaks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from sandlot_gateway.core.bad_json import NOT_JSON
from sandlot_gateway.data.conn import Connection
from sandlot_gateway.data.outgoing import host_header, request_bytes
from sandlot_gateway.data.pool import Answer, HttpPool
from sandlot_gateway.data.routes import Route

_ERROR_BODY = 64 * 1024
_TIMEOUT = 3600.0


class SidecarRequests:
    """A base class: `refused` gives an error of the sidecar the form of the client's wire."""

    __slots__ = ("headers", "pool", "route")

    def __init__(self, *, pool: HttpPool, route: Route, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self.pool = pool
        self.route = route
        self.headers = [(b"authorization", b"Bearer " + route.token.encode()), *headers]

    def refused(self, status: int, body: bytes) -> Exception:
        """Return the error for a sidecar's error response."""
        raise NotImplementedError

    async def fetch(
        self, method: str, target: str, *, json: Any = None, body: bytes = b"", timeout: float = _TIMEOUT
    ) -> Answer:
        """Send a request and return its answer, whatever the status. Raises DialError, UpstreamError."""
        return await self.pool.fetch(
            self.route.address,
            method,
            target,
            headers=self.headers,
            body=body if json is None else msgspec.json.encode(json),
            timeout=timeout,
            known_alive=True,
        )

    async def open(
        self, method: str, target: str, *, json: Any = None, patience: float | None = None
    ) -> Connection:
        """Open a stream of an op's frames, to be released to the pool.

        Raises what `refused` returns, DialError, UpstreamError.
        """
        body = b"" if json is None else msgspec.json.encode(json)
        address = self.route.address
        data = request_bytes(method, target, host=host_header(address), headers=self.headers, body=body)
        connection = await self.pool.acquire(address, known_alive=True, timeout=patience)
        try:
            connection.begin(data)
            response = await connection.head()
            if response.status != 200:
                error = b""
                while len(error) < _ERROR_BODY and (piece := await connection.read()):
                    error += piece
                raise self.refused(response.status, error)
        except BaseException:
            self.pool.release(connection)
            raise
        return connection


def json_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a sidecar's answer; an empty one if it has none."""
    try:
        document: Any = msgspec.json.decode(body)
    except NOT_JSON:
        return {}
    return document if isinstance(document, dict) else {}
