"""Checks a request's headers against its message, as the revisions of the protocol ask for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sandlot.integrations.mcp import wire
from sandlot.integrations.mcp.protocol import (
    HANDSHAKE_VERSIONS,
    STATELESS_VERSIONS,
    VERSIONS,
    stateless_version,
)
from sandlot.integrations.mcp.wire import Call, WireError

_VERSION = "mcp-protocol-version"
_METHOD = "mcp-method"
_NAME = "mcp-name"
_SINGLE = frozenset({_VERSION, _METHOD, _NAME, "mcp-session-id", "content-type"})


def single_headers(lines: Iterable[tuple[bytes, bytes]]) -> tuple[dict[str, str], str | None]:
    """Return the headers by name, and one that may come only once but was repeated."""
    found: dict[str, str] = {}
    repeated: str | None = None
    for raw, value in lines:
        name = raw.decode("latin-1").lower()
        if name not in found:
            found[name] = value.decode("latin-1")
        elif name in _SINGLE:
            repeated = name
        else:
            found[name] += f", {value.decode('latin-1')}"
    return found, repeated


def check_headers(call: Call, headers: Mapping[str, str], *, repeated: str | None) -> None:
    """Raise WireError if the headers contradict the message: whoever routes by them would be misled."""
    if repeated is not None:
        raise WireError(wire.HEADER_MISMATCH, f"the header {repeated} must come only once")
    told, named = headers.get(_VERSION), stateless_version(call)
    if told is not None and told not in VERSIONS and named is None:
        data = {"supported": list(VERSIONS), "requested": told[:64]}
        raise WireError(
            wire.UNSUPPORTED_VERSION,
            "the protocol revision is not supported: use one of `supported`",
            data=data,
        )
    if call.id is None or call.is_answer:
        return
    if named is None:
        if told in STATELESS_VERSIONS:
            raise WireError(wire.INVALID_PARAMS, f"params._meta must name the revision {told}")
        return
    if told != named:
        raise WireError(wire.HEADER_MISMATCH, f"the header {_VERSION} must be the revision in params._meta")
    if named in HANDSHAKE_VERSIONS:
        return
    if headers.get(_METHOD) != call.method:
        raise WireError(wire.HEADER_MISMATCH, f"the header {_METHOD} must be the message's method")
    if call.method == "tools/call" and headers.get(_NAME) != call.params.get("name"):
        raise WireError(wire.HEADER_MISMATCH, f"the header {_NAME} must be the name of the tool")
