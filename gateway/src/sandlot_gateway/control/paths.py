"""The beginning of every path of the control API, except for health checks and calls between gateways."""

from __future__ import annotations

PREFIX = "/api/v1"
E2B_BASE = "/e2b"  # of what speaks the wire of E2B's SDKs
_ENVD = ("process.Process/", "filesystem.Filesystem/")


def is_control(path: str) -> bool:
    """Return whether a path is of the control API, in our own form or E2B's."""
    return path.startswith(PREFIX + "/") or (is_e2b(path) and not is_envd(e2b_route(path)))


def is_e2b(path: str) -> bool:
    return path.startswith(E2B_BASE + "/")


def e2b_route(path: str) -> str:
    """Return what a path below /e2b asks for: without empty segments, and without the version before it.

    All that decides by such a path uses this; else a spelling that is served could escape the audit.
    """
    segments = [segment for segment in path.removeprefix(E2B_BASE).split("/") if segment]
    return "/".join(segments[1:] if segments[:1] == ["v2"] else segments)


def is_envd(route: str) -> bool:
    """Return whether a route is of a sandbox, not of the control API."""
    return route in ("health", "files") or route.startswith(_ENVD) or is_code(route)


def is_code(route: str) -> bool:
    """Return whether a route is of a sandbox's code interpreter."""
    return route == "execute" or route.split("/", 1)[0] == "contexts"
