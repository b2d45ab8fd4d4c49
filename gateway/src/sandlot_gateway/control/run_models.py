"""Request and response models of the routes for the leases of runs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from sandlot_gateway.control.field_types import RunPriority, RunWeight, Strict, Text, WholeNumber
from sandlot_gateway.control.usage_models import UsageCost

_Key = Annotated[Text, Field(min_length=1, max_length=64)]
_Value = Annotated[Text, Field(max_length=256)]


class RunBegin(Strict):
    """A holder's request for a run."""

    holder: Text = Field(
        min_length=1, max_length=128, description="Tells holders apart; the same one may repeat its request."
    )
    grace_seconds: float = Field(
        60.0, ge=5, le=86_400, description="Silence after which the run is lost and its sandboxes end."
    )
    name: Text | None = Field(None, min_length=1, max_length=100, description="Shown; no effect.")
    metadata: dict[_Key, _Value] | None = Field(None, max_length=16, description="Shown; no effect.")
    take_over: bool | None = Field(None, description="true: also from a holder that still renews it.")
    end_sandboxes: bool | None = Field(None, description="true: end those of earlier holders (run_lost).")
    weight: RunWeight = Field(
        1,
        description="Its turns in the queue, beside those of the tenant's other runs; a repeated PUT changes it.",
    )
    priority: RunPriority = Field(
        0,
        description="While creates of a higher one wait, those of the tenant's other runs get no turns; likewise.",
    )


class RunRenewal(Strict):
    epoch: WholeNumber = Field(ge=1, description="Of the holder, from the answer to its PUT.")


class RunResponse(BaseModel):
    """A run; its counts are of the sandboxes whose records this gateway has."""

    id: str
    name: str | None
    state: Literal["ACTIVE", "LOST", "ENDED"] = Field(
        description="LOST: not renewed for its grace. ENDED: its holder ended it."
    )
    epoch: int = Field(description="Of its holder; every holder has a greater one.")
    holder: str
    grace_seconds: float
    metadata: dict[str, str]
    weight: int = Field(description="Its turns in the queue, beside those of the tenant's other runs.")
    priority: int = Field(description="Above those of lower ones of the tenant in the queue.")
    created_at: str = Field(description="When its first holder began it.")
    began_at: str = Field(description="When this holder did.")
    renewed_at: str
    finished_at: str | None
    sandboxes: dict[str, int] = Field(description="Its sandboxes by status.")
    verdicts: dict[str, int] = Field(description="Its ended sandboxes by verdict.")


class RunList(BaseModel):
    runs: list[RunResponse]


class RunStarts(BaseModel):
    """How long its sandboxes took from their create to RUNNING."""

    sandboxes: int = Field(description="Those that became RUNNING, of the ones with a record.")
    seconds: float = Field(description="Of all together.")
    longest_seconds: float
    queued_seconds: float = Field(description="The part of `seconds` that they waited in the queue.")


class RunCommand(BaseModel):
    sandbox_id: str
    op_id: str
    command: str | None = Field(
        description="Its first 256 characters; null if the request was too large, or could not be read."
    )
    seconds: float = Field(description="From its turn to the end of the answer.")
    ended_at: str
    verdict: str | None = Field(description="null: of a stream, or without an answer.")


class RunCommands(BaseModel):
    since: str = Field(description="When the present gateways began to count, the last of them.")
    silent_gateways: int = Field(
        description="Those that did not answer: the commands and ends that they counted are missing."
    )
    count: int
    seconds: float = Field(description="Of all together, without their wait in the queue.")
    queued_seconds: float = Field(description="That they waited for their sandbox's turn.")
    slowest: list[RunCommand] = Field(description="At most 20.")


class RunUsage(BaseModel):
    """What it used, as `GET /usage` tells: seconds of RUNNING sandboxes, times what they asked for."""

    since: str = Field(description="The begin of the hour in which it began, at most 31 days ago.")
    sandboxes: int
    sandbox_seconds: float
    core_seconds: float
    memory_gib_seconds: float
    disk_gib_seconds: float
    gpu_seconds: float
    cost: UsageCost | None = Field(description="null: the operator has set no prices.")


class RunReport(BaseModel):
    run: RunResponse
    ends: dict[str, int] = Field(
        description="Its ended sandboxes by verdict, also those without a record any more, as far as is known."
    )
    masked: dict[str, int] = Field(description="Of `ends`, those that the infrastructure lost: no samples.")
    starts: RunStarts
    usage: RunUsage
    commands: RunCommands
