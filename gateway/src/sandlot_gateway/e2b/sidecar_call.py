"""The requests to a sandbox's sidecar that one request to envd makes."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from sandlot_gateway.data.pool import HttpPool
from sandlot_gateway.data.routes import Route
from sandlot_gateway.data.sidecar_requests import SidecarRequests

from . import sandbox_json
from .failures import EnvdFailure, invalid, of_sidecar

_LONGEST_PATH = 4096  # bytes, as Linux has it; the sidecar refuses a longer query before it reads the path


class SidecarCall(SidecarRequests):
    """`user`: whom the request acts as; None: the image's user, or for files root."""

    __slots__ = ("user",)

    def __init__(
        self,
        *,
        pool: HttpPool,
        route: Route,
        request_id: bytes,
        user: str | None,
        queued: bytes | None = None,
    ) -> None:
        headers = [(b"x-request-id", request_id)]
        if queued is not None:
            headers.append((b"x-sandlot-queued", queued))
        super().__init__(pool=pool, route=route, headers=headers)
        self.user = user

    def refused(self, status: int, body: bytes) -> EnvdFailure:
        return of_sidecar(status, body, self.route.sandbox_id)

    async def json(self, method: str, target: str, *, json: Any = None, body: bytes = b"") -> Any:
        """Send a request and return the answer's JSON. Raises EnvdFailure for an error status."""
        answer = await self.fetch(method, target, json=json, body=body)
        if answer.status != 200:
            raise self.refused(answer.status, answer.body)
        return sandbox_json.parse(answer.body)

    def file_query(self, **fields: str | int) -> str:
        """Return the query of a file call, which acts as the user. Raises EnvdFailure."""
        _check_paths(fields)
        return query(**fields, **({} if self.user is None else {"user": self.user}))

    def file_body(self, **fields: Any) -> dict[str, Any]:
        """Return the body of a file call, which acts as the user. Raises EnvdFailure."""
        _check_paths(fields)
        return fields if self.user is None else {**fields, "user": self.user}


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
