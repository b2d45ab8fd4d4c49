"""Where E2B's routes are: below /e2b, and at the host names that its SDKs derive from a domain."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from sandlot_gateway.control.paths import E2B_BASE, is_e2b
from sandlot_gateway.data.answers import Scope
from sandlot_gateway.settings import Settings

ENVD_PORT = b"49983"
CODE_PORT = b"49999"  # of the code interpreter
SANDBOX_KEY = b"e2b-sandbox-id"
PORT_KEY = b"e2b-sandbox-port"
_LABEL = re.compile(rb"([0-9]{1,5})-(sb-[0-9a-f]{20})\Z")


def relocate(scope: Scope, *, domain: str) -> None:
    """Move a request to `api.DOMAIN` or `PORT-SANDBOX.DOMAIN` below /e2b; a path that is there already stays.

    The host name decides which sandbox a request is for: headers that say otherwise are dropped.
    """
    path: str = scope["path"]
    if scope["type"] != "http":
        return
    host = next((value for name, value in scope["headers"] if name == b"host"), b"")
    label, dot, rest = host.lower().partition(b":")[0].partition(b".")
    if not dot or rest != domain.encode():
        return
    found = _LABEL.match(label)
    if found is None and label != b"api":
        return
    if not is_e2b(path):
        scope["path"], scope["raw_path"] = E2B_BASE + path, E2B_BASE.encode() + scope["raw_path"]
    if found is not None:
        kept = [header for header in scope["headers"] if header[0] not in (SANDBOX_KEY, PORT_KEY)]
        scope["headers"] = [*kept, (SANDBOX_KEY, found[2]), (PORT_KEY, found[1])]


def relocation(settings: Settings) -> Callable[[Scope], None]:
    """Return what the edge does to each request first; nothing without a domain."""
    if not settings.e2b or settings.e2b_domain is None:
        return lambda scope: None
    return partial(relocate, domain=settings.e2b_domain)
