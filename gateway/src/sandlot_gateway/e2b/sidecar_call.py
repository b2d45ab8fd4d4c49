"""The requests to a sandbox's sidecar that one request to envd makes."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec

from sandlot_gateway.data.conn import Connection
from sandlot_gateway.data.outgoing import host_header, request_bytes
from sandlot_gateway.data.pool import Answer, HttpPool
from sandlot_gateway.data.routes import Route

from . import sandbox_json
from .failures import EnvdFailure, invalid, of_sidecar

_ERROR_BODY = 64 * 1024
_TIMEOUT = 3600.0
_LONGEST_PATH = 4096  # bytes, as Linux has it; the sidecar refuses a longer query before it reads the path


class SidecarCall:
    """`user`: whom the request acts as; None: the image's user, or for files root."""

    def __init__(
        self,
        *,
        pool: HttpPool,
        route: Route,
        request_id: bytes,
        user: str | None,
        queued: bytes | None = None,
    ) -> None:
        self.pool = pool
        self.route = route
        self.user = user
        self.headers = [
            (b"authorization", b"Bearer " + route.token.encode()),
            (b"x-request-id", request_id),
            *([(b"x-sandlot-queued", queued)] if queued is not None else []),
        ]

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

    async def json(self, method: str, target: str, *, json: Any = None, body: bytes = b"") -> Any:
        """Send a request and return the answer's JSON. Raises EnvdFailure for an error status."""
        answer = await self.fetch(method, target, json=json, body=body)
        if answer.status != 200:
            raise self.failure(answer)
        return sandbox_json.parse(answer.body)

    def file_query(self, **fields: str | int) -> str:
        """Return the query of a file call, which acts as the user. Raises EnvdFailure."""
        _check_paths(fields)
        return query(**fields, **({} if self.user is None else {"user": self.user}))

    def file_body(self, **fields: Any) -> dict[str, Any]:
        """Return the body of a file call, which acts as the user. Raises EnvdFailure."""
        _check_paths(fields)
        return fields if self.user is None else {**fields, "user": self.user}

    def failure(self, answer: Answer) -> EnvdFailure:
        return of_sidecar(answer.status, answer.body, self.route.sandbox_id)

    async def open(
        self, method: str, target: str, *, json: Any = None, patience: float | None = None
    ) -> Connection:
        """Open a stream of an op's frames, to be released to the pool. Raises EnvdFailure, DialError, UpstreamError."""
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
                raise of_sidecar(response.status, error, self.route.sandbox_id)
        except BaseException:
            self.pool.release(connection)
            raise
        return connection


def query(**fields: str | int) -> str:
    """Return a query for the sidecar, percent-encoded."""
    return "&".join(f"{name}={quote(str(value), safe='')}" for name, value in fields.items())


def _check_paths(fields: dict[str, Any]) -> None:
    for name in ("path", "source", "target"):
        size = len(str(fields.get(name, "")).encode("utf-8", "surrogatepass"))
        if size > _LONGEST_PATH:
            raise invalid(
                "destination" if name == "target" else name, f"is longer than {_LONGEST_PATH} bytes"
            )
