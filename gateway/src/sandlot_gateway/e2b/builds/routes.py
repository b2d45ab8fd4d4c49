"""Which of E2B's routes are of templates and their builds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs

from sandlot_gateway.data.answers import Receive, Scope
from sandlot_gateway.keys import Tenant

from ..failures import Problem
from ..snapshots import PREFIX
from .service import Builds

Answer = tuple[int, Any, list[tuple[bytes, bytes]]]
Body = Callable[[Receive], Awaitable[bytes]]


async def answer(
    builds: Builds, scope: Scope, receive: Receive, *, route: str, who: Tenant, body: Body
) -> Answer | None:
    """Answer a request; None for one of another route. Raises Problem, ApiError, ClientGone."""
    try:
        return await _answer(builds, scope, receive, route=route, who=who, body=body)
    except OSError as error:
        text = f"the directory of checkpoints cannot be used: {error.strerror}: ask the operator"
        raise Problem(507, text) from error


async def upload(builds: Builds, scope: Scope, receive: Receive) -> Answer:
    """Take the archive of a request with a valid link. Raises Problem, ClientGone."""
    try:
        await builds.upload(scope, receive)
    except OSError as error:
        raise Problem(507, f"the archive cannot be kept: {error.strerror}: ask the operator") from error
    return 200, {}, []


async def _answer(
    builds: Builds, scope: Scope, receive: Receive, *, route: str, who: Tenant, body: Body
) -> Answer | None:
    catalogue = builds.catalogue
    match (scope["method"], *route.split("/")):
        case "POST", "v3", "templates":
            return 202, await builds.request(await body(receive), who), []
        case "GET", "templates", template, "files", files_hash:
            return 201, await builds.upload_link(template, files_hash, scope, who), []
        case "POST", "templates", template, "builds", build:
            await builds.start(template, build, await body(receive), receive, who)
            return 202, None, []
        case "GET", "templates", template, "builds", build, "status":
            query = parse_qs(scope["query_string"].decode("latin-1"))
            return 200, await builds.status(template, build, query, who), []
        case "GET", "templates", "aliases", name:
            return 200, await catalogue.alias(name, who), []
        case "GET", "templates", name, "tags":
            return 200, await catalogue.tags(name, who), []
        case "POST", "templates", "tags":
            return 201, await catalogue.assign(await body(receive), who), []
        case "DELETE", "templates", "tags":
            await catalogue.unassign(await body(receive), who)
            return 204, None, []
        case "DELETE", "templates", name if not name.startswith(PREFIX):
            await catalogue.delete(name, who)
            return 204, None, []
        case _:
            return None
