"""Which headers pass between a client and an app in a sandbox: an app gets no credential, and acts on its own name only."""

from __future__ import annotations

import base64
import binascii

from sandlot_gateway.data.wire import Headers
from sandlot_gateway.keys import Keys, plain_key

from .app_refusals import OURS, TRAFFIC_KEY
from .paths import PORT_KEY, SANDBOX_KEY

_NEVER = (TRAFFIC_KEY, SANDBOX_KEY, PORT_KEY, b"forwarded")
_OF_CREDENTIALS = (b"authorization", b"x-api-key", b"x-access-token")  # which an app may use itself
_TOKENS = ("sct_", "stt_", "sst_", "sit_", "spt_", "e2b_")
_WIDE = (b"clear-site-data", b"alt-svc")  # beyond an app's own host name and port


def for_the_app(headers: Headers, keys: Keys) -> Headers:
    """Return what an app gets of a request's headers."""
    return [
        (name, value)
        for name, value in headers
        if name not in _NEVER
        and not name.startswith(b"x-forwarded-")
        and not (name in _OF_CREDENTIALS and _is_ours(value.decode("latin-1"), keys))
    ]


def for_the_client(headers: Headers) -> Headers:
    """Return what a client gets of an app's headers. A cookie would else be one of all sandboxes' names, or of the API's."""
    return [
        (name, _of_one_host(value) if name == b"set-cookie" else value)
        for name, value in headers
        if name not in _WIDE and not name.startswith(OURS)
    ]


def _is_ours(value: str, keys: Keys) -> bool:
    """Return whether a header's value has a credential of the gateway in it."""
    scheme, _, rest = value.strip().partition(" ")
    parts = [value.strip(), rest.strip()]
    if scheme.lower() == "basic":
        try:
            plain = base64.b64decode(rest.strip(), validate=True).decode("latin-1")
        except (binascii.Error, ValueError):
            plain = ""
        parts += [plain, *plain.split(":", 1)]
    return any(part.startswith(_TOKENS) or keys.find(plain_key(part, keys)) for part in parts if part)


def _of_one_host(cookie: bytes) -> bytes:
    """Return a cookie without its domain."""
    first, *rest = cookie.split(b";")
    return b";".join(
        [first, *(part for part in rest if part.partition(b"=")[0].strip().lower() != b"domain")]
    )
