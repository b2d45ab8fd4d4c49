"""Response models of the accounting."""

from __future__ import annotations

from pydantic import BaseModel, Field


class UsageCost(BaseModel):
    """What it costs by the prices of now: decimals, exact to a billionth, whose parts add up to `total`."""

    currency: str
    total: str
    cores: str
    memory: str
    disk: str
    gpus: str


class UsageRow(BaseModel):
    """Seconds are of RUNNING sandboxes, times what they asked for. Fields that `group_by` does not name are null."""

    tenant: str | None
    run: str | None = Field(
        description='null: without a run; "*": of a tenant with too many runs for rows of their own.'
    )
    time: str | None = Field(description="The begin of the hour or day.")
    sandboxes: int = Field(description="Sandboxes that began in this time.")
    sandbox_seconds: float
    core_seconds: float
    memory_gib_seconds: float
    disk_gib_seconds: float
    gpu_seconds: float
    cost: UsageCost | None = Field(description="null: the operator has set no prices.")


class UsageResponse(BaseModel):
    since: str = Field(description="The begin of the hour that the request's `since` is in.")
    until: str = Field(description="The end of the hour that the request's `until` is in.")
    usage: list[UsageRow]
