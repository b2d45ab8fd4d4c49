"""Serves valid creates and deletes by their routes' functions, without FastAPI's routing and dependencies.

Those take more of the gateway's time than the rest of a create. Whatever is not valid goes to FastAPI, which answers it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable

from fastapi import Request, Response
from sandlot_contract.ids import SandboxId, created_at

from sandlot_gateway.control import sandboxes
from sandlot_gateway.control.api import control_api
from sandlot_gateway.control.errors import ApiError, api_error_response, unexpected_response
from sandlot_gateway.control.models import CreateRequest
from sandlot_gateway.control.paths import PREFIX
from sandlot_gateway.control.services import Services, owned
from sandlot_gateway.credentials import bearer
from sandlot_gateway.data.answers import Message, Receive, Scope, Send
from sandlot_gateway.keys import Tenant

_PATH = f"{PREFIX}/sandbox"
_SANDBOXES = f"{PREFIX}/sandbox/"


class Direct:
    """The control API as an ASGI application."""

    def __init__(self, services: Services) -> None:
        self._app = control_api(services)
        self._have = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method, path = scope["method"], scope["path"]
        answering: Awaitable[Response] | None = None
        if method == "POST" and path == _PATH:
            request = Request(scope, receive)
            who = self._caller(request)
            if who is not None and _is_json(request):
                message = await receive()
                body = _create_request(message)
                if body is not None:
                    agent = request.headers.get("user-agent", "")
                    answering = sandboxes.create(body, request, self._have, who, agent)
                else:
                    receive = _again(message, receive)
        elif method == "DELETE" and path.startswith(_SANDBOXES):
            sandbox_id = SandboxId(path.removeprefix(_SANDBOXES))
            who = self._caller(Request(scope)) if created_at(sandbox_id) is not None else None
            if who is not None:
                answering = self._delete(sandbox_id, who)
        if answering is None:
            await self._app(scope, receive, send)
            return
        response = await _answer(answering)
        await response(scope, receive, send)

    async def _delete(self, sandbox_id: SandboxId, who: Tenant) -> Response:
        sandbox = await owned(sandbox_id, self._have, who)
        return await sandboxes.delete(sandbox, self._have)

    def _caller(self, request: Request) -> Tenant | None:
        return self._have.keys.find(bearer(request.headers.get("authorization", "").encode("latin-1")))


async def _answer(answering: Awaitable[Response]) -> Response:
    try:
        return await answering
    except ApiError as error:
        return api_error_response(error)
    except Exception as error:
        return unexpected_response(error)


def _is_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "")
    return kind.partition(";")[0].strip().lower() == "application/json"


def _create_request(message: Message) -> CreateRequest | None:
    """Return the request in a body that has arrived as a whole; None if there is none, or it is invalid."""
    if message["type"] != "http.request" or message.get("more_body"):
        return None
    try:
        return CreateRequest.model_validate(json.loads(message.get("body", b"")))
    except (ValueError, RecursionError):
        return None


def _again(message: Message, receive: Receive) -> Receive:
    """Return a `receive` that returns this message first."""
    first: Message | None = message

    async def replayed() -> Message:
        nonlocal first
        if first is None:
            return await receive()
        given, first = first, None
        return given

    return replayed
