"""Makes the ids of instances and sandboxes, by chance: apart from ids.py, which deciding code imports."""

from __future__ import annotations

import secrets

from sandlot_contract.ids import InstanceId, SandboxId


def new_instance_id() -> InstanceId:
    """64 random bits: no two instances ever have the same one."""
    return InstanceId(f"i-{secrets.token_hex(8)}")


def new_sandbox_id(now: float) -> SandboxId:
    """`now` in Unix seconds comes first, so that another gateway can tell that it may not have heard of it yet."""
    return SandboxId(f"sb-{int(now):08x}{secrets.token_hex(6)}")
