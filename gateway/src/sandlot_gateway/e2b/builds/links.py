"""Upload links: the SDK sends no key with an upload, so that the link itself is the credential for one archive."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qs

from sandlot_gateway.control.paths import E2B_BASE, e2b_route
from sandlot_gateway.data.answers import Scope
from sandlot_gateway.tokens import Tokens

from .names import is_files_hash, is_template_id

_VALID = 3600  # seconds, in which the upload has to begin
_DIGITS = 15


class Link(NamedTuple):
    template: str
    files_hash: str


def link(tokens: Tokens, to: Link, *, base: str) -> str:
    """Return the URL at which the archive can be written for an hour."""
    expires_at = int(tokens.now()) + _VALID
    signature = tokens.e2b_upload(to.template, to.files_hash, expires_at)
    path = f"{E2B_BASE}/templates/{to.template}/files/{to.files_hash}"
    return f"{base}{path}?expires={expires_at}&signature={signature}"


def upload_of(scope: Scope, tokens: Tokens) -> Link | None:
    """Return what a request with a valid link uploads; None for any other request."""
    if scope["method"] != "PUT":
        return None
    match e2b_route(scope["path"]).split("/"):
        case ["templates", template, "files", files_hash] if is_template_id(template):
            pass
        case _:
            return None
    query = parse_qs(scope["query_string"].decode("latin-1"))
    match query.get("expires", []), query.get("signature", []):
        case [expires], [signature]:
            pass
        case _:
            return None
    if not (is_files_hash(files_hash) and expires.isascii() and expires.isdigit()):
        return None
    if len(expires) > _DIGITS or int(expires) <= tokens.now():
        return None
    if not tokens.is_e2b_upload(signature, template, files_hash, int(expires)):
        return None
    return Link(template, files_hash)


def base_of(scope: Scope, *, public_url: str | None) -> str:
    """Return the address at which the client reaches this gateway."""
    if public_url:
        return public_url.rstrip("/")
    host = next((value for name, value in scope["headers"] if name == b"host"), b"").decode("latin-1")
    return f"{scope['scheme']}://{host}"
