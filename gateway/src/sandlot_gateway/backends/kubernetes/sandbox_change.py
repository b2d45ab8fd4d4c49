"""What the watch shows of one Sandbox: that it appeared, got its owner or its end, or was deleted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_kube.ends import Ended


@dataclass(frozen=True, slots=True)
class SandboxChange:
    pod: InstanceId
    owner: SandboxId | None
    ended: Ended | None
    request: dict[str, Any] | None = None  # the create request, once it has ended
    deleted: bool = False  # and no other Sandbox has the pod, or this generation of it
    generation: int | None = None  # of a pod that outlives this Sandbox's end
