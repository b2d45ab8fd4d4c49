"""Defines and recognises the ids of instances and sandboxes.

Text becomes an id where it enters: in a path, a document or the name of a resource.
"""

from __future__ import annotations

import re
from typing import NewType, TypeGuard

InstanceId = NewType("InstanceId", str)
SandboxId = NewType("SandboxId", str)

_INSTANCE = re.compile(r"i-[0-9a-f]{16}\Z")
_SANDBOX = re.compile(r"sb-[0-9a-f]{20}\Z")


def is_instance_id(text: str) -> TypeGuard[InstanceId]:
    return _INSTANCE.match(text) is not None


def created_at(sandbox_id: SandboxId) -> float | None:
    """Return the Unix second of the id's creation, or None if no gateway can have created it."""
    return float(int(sandbox_id[3:11], 16)) if _SANDBOX.match(sandbox_id) else None
