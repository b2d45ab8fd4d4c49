"""Moves an API key from the path into the Authorization header, before a log or a record can see the path."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any
from urllib.parse import unquote_to_bytes

RUN_CODE = "/run_code"
RUN_JUPYTER = "/run_jupyter"
PING = "/v1/ping"
PATHS = frozenset((RUN_CODE, RUN_JUPYTER, PING))
_PREFIX = b"fusion/"  # behind slashes, which some clients double


def hide_key(scope: MutableMapping[str, Any]) -> None:
    """Make `/fusion/KEY/run_code` a request for `/run_code` with this key; other paths below it lose their key, too."""
    raw: bytes = scope.get("raw_path") or b""
    if not unquote_to_bytes(raw).lstrip(b"/").startswith(_PREFIX):
        return
    first, _, below = raw.lstrip(b"/").partition(b"/")
    # With an encoded slash the key has no place of its own: the request loses it, and gets a 404.
    key, _, rest = below.partition(b"/") if unquote_to_bytes(first) + b"/" == _PREFIX else (b"", b"", b"")
    path = "/" + rest.decode("latin-1")
    scope["path"] = path if path in PATHS else "/fusion"
    scope["raw_path"] = scope["path"].encode()
    others = [header for header in scope["headers"] if header[0] != b"authorization"]
    scope["headers"] = [*others, (b"authorization", b"Bearer " + unquote_to_bytes(key))]
