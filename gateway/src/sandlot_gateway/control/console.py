"""Serves the files of the web console. They hold no data: the pages ask the control API for it with the user's key."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path

from fastapi import APIRouter, Request, Response

from sandlot_gateway.control.errors import ApiError
from sandlot_gateway.control.services import Have

router = APIRouter(include_in_schema=False)

_FILES = Path(__file__).resolve().parent.parent / "console"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_POLICY = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    # Text of a sandbox cannot become a script by mistake: the browser rejects strings as HTML.
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
)
_HEADERS = {
    "content-security-policy": "; ".join(_POLICY),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
    # A page that opened the console in a window, an exposed app of the same origin say, cannot reach into it.
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    kind: str
    tag: str


@cache
def _files() -> dict[str, _File]:
    """Return the files by their path below `/console/`, read once at the first request."""
    found: dict[str, _File] = {}
    for path in sorted(_FILES.rglob("*")):
        kind = _TYPES.get(path.suffix)
        if kind is not None:
            content = path.read_bytes()
            tag = f'"{blake2b(content, digest_size=16).hexdigest()}"'
            found[path.relative_to(_FILES).as_posix()] = _File(content, kind, tag)
    return found


@router.api_route("/console", methods=["GET", "HEAD"])
async def without_slash(have: Have) -> Response:
    _check_enabled(have.settings.console)
    return Response(status_code=307, headers={**_HEADERS, "location": "console/"})


@router.api_route("/console/{name:path}", methods=["GET", "HEAD"])
async def console_file(name: str, request: Request, have: Have) -> Response:
    _check_enabled(have.settings.console)
    file = _files().get(name or "index.html")
    if file is None:
        raise ApiError(404, f"the console has no file {name[:100]!r}: open /console/")
    headers = {**_HEADERS, "etag": file.tag}
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.kind, headers=headers)


def _check_enabled(enabled: bool) -> None:
    if not enabled:
        raise ApiError(404, "the console is off: the operator can enable it by the setting console")
