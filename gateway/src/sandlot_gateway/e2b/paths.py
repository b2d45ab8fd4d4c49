"""Where E2B's routes are: below /e2b, and at the host names that its SDKs derive from a domain."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from sandlot_contract.ids import SandboxId

from sandlot_gateway.control.paths import E2B_BASE, is_e2b
from sandlot_gateway.data.answers import Scope
from sandlot_gateway.data.mounted import APP, APP_BASE
from sandlot_gateway.settings import Settings

ENVD_PORT = b"49983"
CODE_PORT = b"49999"  # of the code interpreter
SANDBOX_KEY = b"e2b-sandbox-id"
PORT_KEY = b"e2b-sandbox-port"
_LABEL = re.compile(rb"([0-9]+)-(.*)\Z", re.DOTALL)
_SANDBOX = re.compile(rb"sb-[0-9a-f]{20}\Z")
_HOST_PORT = re.compile(rb"(?::[0-9]{1,5})?\Z")


@dataclass(frozen=True, slots=True)
class AppHost:
    """A name that ports of sandboxes have; `port` 0 and `sandbox_id` "" are none. `host`: as an app may see it."""

    sandbox_id: SandboxId
    port: int
    host: bytes


def relocate(scope: Scope, *, domain: str) -> None:
    """Move a request to `api.DOMAIN` or `PORT-SANDBOX.DOMAIN` below /e2b; a path that is there already stays.

    The host name decides which sandbox a request is for: headers that say otherwise are dropped. Requests for ports of
    users' apps get the scope's key APP, whatever their path. So does each that could be one: nothing else is served there.
    """
    hosts = [value.lower() for name, value in scope["headers"] if name == b"host"]
    labels = [_label(host, domain.encode()) for host in hosts]
    if APP in scope or not any(labels):
        return
    # One proxy goes by the first of several, another by the last.
    label = labels[0] or b"" if len(labels) == 1 else b"0-"
    found = _LABEL.match(label)
    own = found is not None and found[1] in (ENVD_PORT, CODE_PORT) and _SANDBOX.match(found[2])
    if found is not None and not own:
        _move(scope, APP_BASE)
        scope[APP] = _app_host(hosts[0], found[1], found[2], domain.encode())
    elif scope["type"] == "http" and (found is not None or label == b"api"):
        if not is_e2b(scope["path"]):
            _move(scope, E2B_BASE)
        if found is not None:
            kept = [header for header in scope["headers"] if header[0] not in (SANDBOX_KEY, PORT_KEY)]
            scope["headers"] = [*kept, (SANDBOX_KEY, found[2]), (PORT_KEY, found[1])]


def _label(host: bytes, domain: bytes) -> bytes | None:
    """Return what a host name has before the domain; None for another one."""
    label, dot, rest = host.partition(b":")[0].removesuffix(b".").partition(b".")
    return label if dot and rest == domain else None


def _app_host(host: bytes, port: bytes, sandbox: bytes, domain: bytes) -> AppHost:
    number = int(port) if len(port) <= 5 and 0 < int(port) < 65536 else 0
    sandbox_id = SandboxId(sandbox.decode() if _SANDBOX.match(sandbox) else "")
    _, colon, own = host.partition(b":")
    suffix = colon + own if _HOST_PORT.match(colon + own) else b""
    return AppHost(sandbox_id, number, b"%d-%b.%b%b" % (number, sandbox_id.encode(), domain, suffix))


def _move(scope: Scope, base: str) -> None:
    scope["path"], scope["raw_path"] = base + scope["path"], base.encode() + scope["raw_path"]


def relocation(settings: Settings) -> Callable[[Scope], None]:
    """Return what the edge does to each request first; nothing without a domain."""
    if not settings.e2b or settings.e2b_domain is None:
        return lambda scope: None
    return partial(relocate, domain=settings.e2b_domain)
