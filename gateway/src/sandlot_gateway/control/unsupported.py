"""Answers Prime's routes that this server lacks with a 501, which tells them from misspelt ones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import APIRouter, Response

from sandlot_gateway.control.errors import ApiError
from sandlot_gateway.control.paths import PREFIX
from sandlot_gateway.control.services import Who

# Missing feature -> its paths; not in the OpenAPI, which describes only what exists.
UNSUPPORTED = {
    "volumes": (
        "/sandbox/volumes",
        "/sandbox/volumes/{name}",
        "/sandbox/{sandbox_id}/volumes/{name}/publish",
    ),
    "networks between sandboxes": (
        "/sandbox/networks",
        "/sandbox/networks/{network_id}",
        "/sandbox/networks/{network_id}/rules",
        "/sandbox/networks/{network_id}/members/{sandbox_id}",
    ),
    "image registry": (
        "/images",
        "/images/build",
        "/images/build/{build_id}",
        "/images/build/{build_id}/start",
    ),
    "tunnels": ("/tunnel", "/tunnel/{tunnel_id}"),
}

router = APIRouter(prefix=PREFIX, include_in_schema=False)


def _refusal(what: str) -> Callable[..., Awaitable[Response]]:
    async def refuse(who: Who) -> Response:
        raise ApiError(501, f"not implemented: this server has no {what}")

    return refuse


for _what, _paths in UNSUPPORTED.items():
    for _path in _paths:
        router.add_api_route(_path, _refusal(_what), methods=["GET", "POST", "PUT", "PATCH", "DELETE"])
