"""The beginning of every path of the control API, except for health checks and calls between gateways."""

from __future__ import annotations

PREFIX = "/api/v1"
E2B_BASE = "/e2b"  # of what speaks the wire of E2B's SDKs
E2B_SANDBOXES = (f"{E2B_BASE}/sandboxes", f"{E2B_BASE}/v2/sandboxes")
_E2B_CONTROL = (*E2B_SANDBOXES, f"{E2B_BASE}/snapshots", f"{E2B_BASE}/templates/")


def is_control(path: str) -> bool:
    """Return whether a path is of the control API, in our own form or E2B's."""
    return path.startswith((PREFIX + "/", *_E2B_CONTROL))
