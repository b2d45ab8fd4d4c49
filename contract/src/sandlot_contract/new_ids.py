"""Generates random ids of instances and sandboxes; apart from ids.py, which code without I/O imports."""

from __future__ import annotations

import secrets

from sandlot_contract.ids import InstanceId, SandboxId


def new_instance_id() -> InstanceId:
    """Return a new id with 64 random bits, which is never repeated."""
    return InstanceId(f"i-{secrets.token_hex(8)}")


def new_sandbox_id(now: float) -> SandboxId:
    """Return a new id that begins with `now` (Unix seconds), so that other gateways can tell a new sandbox."""
    return SandboxId(f"sb-{int(now):08x}{secrets.token_hex(6)}")
