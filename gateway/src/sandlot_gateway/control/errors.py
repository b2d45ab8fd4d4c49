"""Turns every failure of the control API into its one error body."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field
from sandlot_contract.ids import SandboxId
from starlette.exceptions import HTTPException

from sandlot_gateway.checkpoints.errors import StoreError, Trouble
from sandlot_gateway.core.backend import BackendError, Unavailable

_log = logging.getLogger(__name__)

UNEXPECTED = (
    "unexpected failure in the gateway; its log has the cause. Try again, or report it to the operator"
)
# FastAPI's own text for all but a syntax error, which is a 422, says nothing.
_NO_JSON = (
    "the body cannot be read as JSON: send UTF-8, nested less deeply, and numbers of fewer than 4300 digits"
)
_NAMED = re.compile(r"([a-z_]+): ")


class FieldError(BaseModel):
    param: str = Field(description="Path of the field, such as `a.b.0`, in the body, query or path.")
    details: str


class ErrorBody(BaseModel):
    detail: str = Field(description="One human-readable sentence.")
    errors: list[FieldError] = Field(description="The invalid fields; empty if the error concerns none.")


class BusyBody(ErrorBody):
    queue_position: int | None = Field(
        None, description="The queue position that this create would have had; 1 is next."
    )


class ApiError(Exception):
    """Raised by a route to answer with an error."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        field: str | None = None,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.field = field
        self.headers = dict(headers or {})
        self.extra = dict(extra or {})


_DESCRIPTIONS = {
    400: "The body is not valid JSON.",
    401: "The API key is missing or unknown.",
    403: "The key's role does not allow it.",
    404: "Not found, or owned by another tenant.",
    408: "The body did not arrive in time.",
    409: "Not possible in the sandbox's present state.",
    410: "The cursor is too old; `resume` is the oldest one from which nothing is missing.",
    413: "The body is larger than the server accepts.",
    422: "A field is invalid; `errors` names it.",
    429: "A quota of the tenant is reached; Retry-After says when to try again.",
    501: "Not configured on this server; the message names the setting.",
    502: "The sandbox did not answer.",
    503: "Too busy now; Retry-After says when to try again.",
    507: "The checkpoint quota or the server's disk is full.",
}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of a route: these, and those of every route."""
    wanted = {401, 503, *statuses}
    if 404 in wanted:
        wanted.add(422)  # an id in the path may be invalid; without this, FastAPI documents its own body
    return {
        status: {"model": BusyBody if status == 503 else ErrorBody, "description": _DESCRIPTIONS[status]}
        for status in sorted(wanted)
    }


def body_errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of a route that reads a body."""
    return errors(400, 408, 413, 422, *statuses)


def not_found(sandbox_id: SandboxId) -> ApiError:
    return ApiError(
        404,
        f"no sandbox {sandbox_id!r}: its id is wrong, its record was removed, or another tenant owns it"[
            :300
        ],
    )


def not_known_yet(sandbox_id: SandboxId) -> ApiError:
    """Return the error for a sandbox that another gateway may have just created, and that is unreachable now."""
    return ApiError(
        503,
        f"sandbox {sandbox_id!r} is not known to this gateway yet: try again after Retry-After"[:300],
        headers={"Retry-After": "1"},
    )


def not_kept(error: BackendError) -> ApiError:
    """Return the error for a change that could not be stored where other gateways read it."""
    wait = error.retry_after if isinstance(error, Unavailable) else 2.0
    return ApiError(503, str(error), headers={"Retry-After": f"{math.ceil(wait)}"})


def error_response(
    status: int,
    detail: str,
    *,
    fields: Sequence[tuple[str, str]] = (),
    headers: Mapping[str, str] | None = None,
    extra: Mapping[str, Any] | None = None,
) -> Response:
    document = {
        "detail": detail,
        "errors": [{"param": param, "details": details} for param, details in fields],
        **(extra or {}),
    }
    body = msgspec.json.encode(document)
    return Response(body, status_code=status, media_type="application/json", headers=dict(headers or {}))


def api_error_response(error: ApiError) -> Response:
    fields = [(error.field, error.detail)] if error.field is not None else []
    return error_response(error.status, error.detail, fields=fields, headers=error.headers, extra=error.extra)


def store_problem(error: StoreError) -> ApiError:
    """Return the error for a store of checkpoints that failed."""
    if error.trouble is Trouble.FULL:
        return ApiError(507, error.text)
    return ApiError(503, error.text, headers={"Retry-After": "5"})


def unexpected_response(error: Exception) -> Response:
    """Log an error that no route expects, and return its response."""
    if isinstance(error, StoreError):
        _log.warning("a request failed: %s", error)
        return api_error_response(store_problem(error))
    # 503, not 500: clients retry a create on 503 only, which the idempotency key makes safe.
    _log.exception("unexpected failure of a control request", exc_info=error)
    return error_response(503, UNEXPECTED, headers={"retry-after": "1"})


def install(app: FastAPI) -> None:
    """Install the handlers that give every failure of this app the error body."""

    @app.exception_handler(ApiError)
    async def _api_error(request: Request, error: ApiError) -> Response:
        return api_error_response(error)

    @app.exception_handler(RequestValidationError)
    async def _invalid(request: Request, error: RequestValidationError) -> Response:
        fields = [_field_error(item) for item in error.errors()[:50]]
        detail = "; ".join(f"{param}: {details}" for param, details in fields[:5])
        return error_response(422, detail, fields=fields)

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> Response:
        headers = {name.lower(): value for name, value in (error.headers or {}).items()}
        if error.status_code == 405:
            headers["allow"] = ", ".join(_allowed(request))
        return error_response(error.status_code, _text(error, request), headers=headers)

    @app.exception_handler(StoreError)
    async def _store(request: Request, error: StoreError) -> Response:
        return unexpected_response(error)

    @app.exception_handler(Exception)
    async def _unexpected(request: Request, error: Exception) -> Response:
        return unexpected_response(error)


def _allowed(request: Request) -> list[str]:
    """Return all methods of this path; FastAPI names only those of the first matching route."""
    methods: set[str] = set()
    for route in request.app.routes:
        if (
            isinstance(route, APIRoute)
            and route.include_in_schema
            and route.path_regex.match(request.url.path)
        ):
            methods |= route.methods or set()
    return sorted(methods)


def _text(error: HTTPException, request: Request) -> str:
    if error.status_code == 404:
        return f"no such route: {request.method} {request.url.path}"[:300]
    if error.status_code == 405:
        instead = ", ".join(_allowed(request)) or "another method"
        return f"{request.method} is no method of {request.url.path[:200]}: send {instead} instead"
    if error.status_code == 400:
        return _NO_JSON
    return str(error.detail)


def _field_error(item: Any) -> tuple[str, str]:
    place = [str(part) for part in item["loc"][1:]]
    message = str(item["msg"]).removeprefix("Value error, ")
    if item["type"] == "json_invalid":
        return "body", message
    if not place:
        # A validator over several fields begins its message with the invalid field.
        named = _NAMED.match(message)
        return (named[1] if named else str(item["loc"][0])), message
    return ".".join(place).encode("utf-8", "replace").decode()[:200], message
