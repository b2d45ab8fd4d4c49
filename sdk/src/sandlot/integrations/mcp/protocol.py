"""Answers the messages of one session, of the revisions with a handshake and of those where each request stands alone.

2026-07-28 has no `initialize` and no session: each request names its revision in `params._meta`.
"""

from __future__ import annotations

import json
import logging
from typing import Any, cast

from sandlot import _version
from sandlot.errors import SandlotError
from sandlot.integrations.mcp import wire
from sandlot.integrations.mcp.failures import failure
from sandlot.integrations.mcp.schema import check
from sandlot.integrations.mcp.session import Session
from sandlot.integrations.mcp.tool import INSTRUCTIONS
from sandlot.integrations.mcp.tools import BY_NAME, TOOLS
from sandlot.integrations.mcp.wire import Call, WireError

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STATELESS_VERSIONS = ("2026-07-28",)
VERSIONS = (*HANDSHAKE_VERSIONS, *STATELESS_VERSIONS)
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"

_CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
_SERVER_KEY = "io.modelcontextprotocol/serverInfo"
_INFO = {"name": "sandlot", "title": "Sandlot", "version": _version.__version__}
_CAPABILITIES: dict[str, dict[str, object]] = {"tools": {}}
_KEEP = {"ttlMs": 3_600_000, "cacheScope": "public"}  # the list is the same for all

_log = logging.getLogger(__name__)


def stateless_version(call: Call) -> object | None:
    """Return the revision that a request names for itself, or None for one of a session with a handshake."""
    meta = call.params.get("_meta")
    return cast(dict[str, object], meta).get(VERSION_KEY) if isinstance(meta, dict) else None


async def answer(call: Call, session: Session) -> dict[str, Any]:
    """Return the result of a request. Raises WireError; never raises for a tool that fails."""
    version = stateless_version(call)
    if version is None:
        return await _with_handshake(call, session)
    if not isinstance(version, str):
        raise WireError(wire.INVALID_PARAMS, f"_meta: {VERSION_KEY} must be a string")
    if version not in STATELESS_VERSIONS:
        data = {"supported": list(VERSIONS), "requested": version[:64]}
        raise WireError(
            wire.UNSUPPORTED_VERSION,
            "the protocol revision is not supported: use one of `supported`",
            data=data,
        )
    if not isinstance(call.params["_meta"].get(_CAPABILITIES_KEY), dict):
        raise WireError(wire.INVALID_PARAMS, f"_meta: {_CAPABILITIES_KEY} is required")
    result = await _stateless(call, session)
    return {
        **result,
        "resultType": "complete",
        "_meta": {**result.get("_meta", {}), _SERVER_KEY: _INFO},
    }


async def _with_handshake(call: Call, session: Session) -> dict[str, Any]:
    match call.method:
        case "initialize":
            wanted = call.params.get("protocolVersion")
            version = wanted if wanted in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
            return {
                "protocolVersion": version,
                "capabilities": _CAPABILITIES,
                "serverInfo": _INFO,
                "instructions": INSTRUCTIONS,
            }
        case "ping":
            return {}
        case "tools/list":
            return {"tools": [tool.document for tool in TOOLS]}
        case "tools/call":
            return await _call_tool(call, session)
        case _:
            raise _unknown(call)


async def _stateless(call: Call, session: Session) -> dict[str, Any]:
    match call.method:
        case "server/discover":
            return {
                "supportedVersions": list(VERSIONS),
                "capabilities": _CAPABILITIES,
                "instructions": INSTRUCTIONS,
                **_KEEP,
            }
        case "tools/list":
            return {"tools": [tool.document for tool in TOOLS], **_KEEP}
        case "tools/call":
            return await _call_tool(call, session)
        case _:
            raise _unknown(call)


async def _call_tool(call: Call, session: Session) -> dict[str, Any]:
    name, given = call.params.get("name"), call.params.get("arguments")
    tool = BY_NAME.get(name) if isinstance(name, str) else None
    if tool is None:
        raise WireError(wire.INVALID_PARAMS, f"unknown tool {str(name)[:64]!r}: tools/list shows all")
    try:
        check({} if given is None else given, tool.takes)
        result = await tool.run(session, cast(dict[str, Any], given or {}))
    except (SandlotError, ValueError, TimeoutError) as error:
        return failure(error)
    except Exception:
        _log.exception("the tool %s failed by a defect", tool.name)
        raise WireError(
            wire.INTERNAL_ERROR, "the tool failed by a defect of the server: see its log"
        ) from None
    # The text is for clients of the revisions before structured results.
    text = json.dumps(result, ensure_ascii=False)
    return {"content": [{"type": "text", "text": text}], "structuredContent": result, "isError": False}


def _unknown(call: Call) -> WireError:
    return WireError(wire.METHOD_NOT_FOUND, f"unknown method {call.method[:64]!r}: the server has only tools")
