"""Request and response models of the pool routes."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field
from sandlot_contract.template import PIDS

from sandlot_gateway import runtime_classes
from sandlot_gateway.control.field_types import GpuCount, Pids, PoolSize, Strict, Text, Uses
from sandlot_gateway.core.instances import Reuse

_USUAL = Reuse()


class ReuseRequest(Strict):
    """Who may get an instance of the pool after its sandbox has ended. Absent fields keep their value."""

    policy: Literal["never", "tenant"] | None = Field(
        None,
        description="never: no one. tenant: after a reset that found no difference, the tenant that used it "
        f"before. Default: {_USUAL.policy}.",
    )
    max_uses: Uses | None = Field(
        None, description=f"Sandboxes that one instance serves at most; default {_USUAL.max_uses}."
    )
    max_age: float | None = Field(
        None,
        gt=0,
        le=31_536_000,
        description=f"Seconds after its start until which an instance is reused; default {_USUAL.max_age:g}.",
    )


class PoolRequest(Strict):
    """Absent or null fields keep their value; a new pool gets the defaults."""

    image: Text | None = Field(
        None, min_length=1, max_length=1024, description="Default: host; on Kubernetes with slots none."
    )
    size: PoolSize | None = Field(
        None,
        description="Warm instances to keep. Required for a new pool; turns autoscaling off.",
    )
    cpu_cores: float | None = Field(None, ge=0.1, le=256, description="Default: 1.")
    memory_gb: float | None = Field(None, ge=0.03, le=4096, description="Default: 1.")
    disk_size_gb: float | None = Field(None, ge=0.01, le=16384, description="Default: 5.")
    pids: Pids | None = Field(None, description=f"Default: {PIDS}.")
    gpu_count: GpuCount | None = Field(None, description="GPUs of each instance; default: 0.")
    gpu_type: Text | None = Field(None, max_length=100, description="Empty: any type, the default.")
    runtime_class: str | None = Field(
        None,
        max_length=runtime_classes.MOST,
        pattern=f"^({runtime_classes.PATTERN})?$",
        description="Kubernetes: a RuntimeClass that the operator allows; empty: that of the chart, the default.",
    )
    owner: str | None = Field(
        None,
        max_length=64,
        description="The tenant that owns the pool; empty: shared. Absent: unchanged; for a new pool the "
        "key's tenant, or shared if the key has the role operate.",
    )
    reuse: ReuseRequest | None = None


class ReuseResponse(BaseModel):
    policy: Literal["never", "tenant"]
    max_uses: int
    max_age: float = Field(description="Seconds.")


class SlotCounts(BaseModel):
    """The slots of a pool by state, of all tenants, as far as this gateway knows."""

    unreported: int = Field(description="Just reset or claimed elsewhere: the next report decides.")
    warm: int = Field(description="Ready, without an owner.")
    claiming: int = Field(description="Granted to a create, which is being confirmed.")
    owned: int
    ending: int = Field(description="Being reset or removed.")


class PoolResponse(BaseModel):
    name: str
    image: str
    owner: str | None = Field(description="The tenant whose creates use it; null: all tenants.")
    size: int = Field(description="Current target.")
    min_size: int | None = Field(description="With max_size: the bounds of autoscaling.")
    max_size: int | None
    ready: int = Field(description="Instances ready to be claimed.")
    starting: int
    slots: SlotCounts
    failures: int
    message: str | None = Field(description="Reason of the last failed start.")
    cpu_cores: float
    memory_gb: float
    disk_size_gb: float
    pids: int
    gpu_count: int
    gpu_type: str | None
    runtime_class: str | None
    reuse: ReuseResponse


class PoolList(BaseModel):
    pools: list[PoolResponse]


class Queue(BaseModel):
    waiting: int = Field(description="Create requests waiting for an instance.")
    starting: int = Field(description="Cold starts in flight.")
    ready: int = Field(description="Ready warm instances of all pools.")


class Stats(BaseModel):
    """The data of `sandlot top`; `machine` depends on the backend."""

    sandboxes: dict[str, int] = Field(description="The tenant's sandboxes by status.")
    verdicts: dict[str, int] = Field(description="The tenant's ended sandboxes by verdict.")
    pools: list[PoolResponse]
    queue: Queue
    usage: list[dict[str, Any]] = Field(
        description="Usage of the tenant's sandboxes, if the backend measures it."
    )
    machine: dict[str, Any]
