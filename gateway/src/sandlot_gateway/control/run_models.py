"""Request and response models of the routes for the leases of runs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from sandlot_gateway.control.field_types import RunWeight, Strict, Text, WholeNumber

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
    created_at: str = Field(description="When its first holder began it.")
    began_at: str = Field(description="When this holder did.")
    renewed_at: str
    finished_at: str | None
    sandboxes: dict[str, int] = Field(description="Its sandboxes by status.")
    verdicts: dict[str, int] = Field(description="Its ended sandboxes by verdict.")


class RunList(BaseModel):
    runs: list[RunResponse]
