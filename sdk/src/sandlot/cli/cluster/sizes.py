"""Requests and limits of the pods that a pool makes, by the controller's settings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from .doc import Doc
from .pod_requests import total
from .world import Kind, World

_KERNEL_CORES = 0.2  # of the sidecar, in a pod with a kernel of its own
_SIDECAR_DISK = float(1 << 30)  # its limit


@dataclass(frozen=True, slots=True)
class Size:
    name: str
    requests: dict[str, float]
    limits: dict[str, float]


@dataclass(frozen=True, slots=True)
class PodSize:
    pool: str
    containers: list[Size]

    @property
    def whole(self) -> Size:
        return Size(
            "the pod",
            total(one.requests for one in self.containers),
            total(one.limits for one in self.containers),
        )

    def quota(self, resource: str) -> float:
        """Return how much of a quota's resource the pod takes."""
        if resource in ("pods", "count/pods"):
            return 1.0
        part = self.whole.limits if resource.startswith("limits.") else self.whole.requests
        return part.get(resource.removeprefix("limits.").removeprefix("requests."), 0.0)


def pool_sizes(world: World) -> list[PodSize]:
    """Return one for each pool. Raises NotRead."""
    settings = world.settings("controller")
    return [_size(pool, settings) for pool in world.list(Kind.POOLS, world.release.sandboxes)]


def _size(pool: Doc, settings: Mapping[str, str]) -> PodSize:
    template = pool.doc("spec", "template")
    cpu, memory = _number(template.text("cpu"), 1.0), _number(template.text("memory"), float(1 << 30))
    default = settings.get("SANDLOT_RUNTIME_CLASS", "")
    own_kernel = bool(default) and (template.text("runtimeClass") or default) == default
    headroom = _setting(settings, "MEMORY_HEADROOM", 256 << 20) if own_kernel else 0.0
    disk = _number(template.text("disk"), float(5 << 30))
    gpus = template.number("gpuCount")
    devices = {gpu_resource(settings): float(gpus)} if gpus else {}
    limits = {"cpu": cpu, "memory": memory + headroom, "ephemeral-storage": disk, **devices}
    shares = {
        "cpu": math.ceil(round(1000 * cpu * _setting(settings, "CPU_SHARE", 0.1), 6)) / 1000,
        "memory": float(math.ceil(memory * _setting(settings, "MEMORY_SHARE", 0.25))),
        "ephemeral-storage": float(math.ceil(disk * _setting(settings, "DISK_SHARE", 0.0))),
        **devices,
    }
    most = _setting(settings, "SIDECAR_CPU_LIMIT", 1.0)
    sidecar = {
        "cpu": min(most, _KERNEL_CORES) if own_kernel else most,
        "memory": _setting(settings, "SIDECAR_MEMORY_LIMIT", 256 << 20),
        "ephemeral-storage": _SIDECAR_DISK,
    }
    requested = {
        "cpu": _setting(settings, "SIDECAR_CPU_REQUEST", 0.01),
        "memory": _setting(settings, "SIDECAR_MEMORY_REQUEST", 32 << 20),
        "ephemeral-storage": 0.0,
    }
    guaranteed = settings.get("SANDLOT_GUARANTEED", "") == "true"
    return PodSize(
        pool.name,
        [
            Size("sandbox", limits if guaranteed else shares, limits),
            Size("sidecar", sidecar if guaranteed else requested, sidecar),
        ],
    )


def gpu_resource(settings: Mapping[str, str]) -> str:
    """Return the resource's name of a GPU."""
    return settings.get("SANDLOT_GPU_RESOURCE", "nvidia.com/gpu")


def gpu_labels(pool: Doc, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that a node must have for the pool's type of GPU."""
    template = pool.doc("spec", "template")
    kind = template.text("gpuType") if template.number("gpuCount") else ""
    return {settings.get("SANDLOT_GPU_LABEL", "nvidia.com/gpu.product"): kind} if kind else {}


def _setting(settings: Mapping[str, str], name: str, default: float) -> float:
    return _number(settings.get(f"SANDLOT_{name}", ""), default)


def _number(text: str, default: float) -> float:
    try:
        return float(text)
    except ValueError:
        return default
