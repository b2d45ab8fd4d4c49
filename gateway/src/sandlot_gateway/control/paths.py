"""The beginning of every path of the control API, except for health checks and calls between gateways."""

from __future__ import annotations

PREFIX = "/api/v1"
E2B_BASE = "/e2b"  # of what speaks the wire of E2B's SDKs
