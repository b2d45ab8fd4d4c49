"""Request and response models of the group routes."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field, model_validator

from sandlot_gateway.control.field_types import MOST_OF_GROUP, GroupCount, Strict
from sandlot_gateway.control.models import CreateRequest, SandboxResponse

MOST_DEADLINE = 3600  # seconds


class GroupMember(CreateRequest):
    """A create request, for `count` sandboxes. The group has the idempotency key and the time to wait."""

    count: GroupCount = 1

    @model_validator(mode="after")
    def _of_group(self) -> GroupMember:
        for name in ("idempotency_key", "wait_seconds"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name}: the group has one for all its sandboxes; leave it out here")
        return self


class GroupRequest(Strict):
    members: list[GroupMember] = Field(
        min_length=1, max_length=64, description="What to create, all or none."
    )
    idempotency_key: str | None = Field(
        None, min_length=1, max_length=128, description="Requests with the same key get the same group."
    )
    wait_seconds: float | None = Field(
        None, ge=0, le=25, description="Seconds to wait for all sandboxes before answering; default 10."
    )
    deadline_seconds: float | None = Field(
        None,
        gt=0,
        le=MOST_DEADLINE,
        description="Seconds from the first request in which all sandboxes must run, else none; default 300.",
    )

    @model_validator(mode="after")
    def _together(self) -> GroupRequest:
        total = sum(member.count for member in self.members)
        if total > MOST_OF_GROUP:
            raise ValueError(
                f"members: {total} sandboxes, and a group has at most {MOST_OF_GROUP}; create several groups"
            )
        if len({member.run_id or member.run for member in self.members}) > 1:
            raise ValueError("members: they name several runs; a group is of one run")
        if len({(member.run_id, member.run_epoch) for member in self.members}) > 1:
            raise ValueError("members: run_id and run_epoch must be the same for all; a group is of one run")
        return self


class GroupResponse(BaseModel):
    id: str
    status: Literal["PENDING", "RUNNING", "FAILED", "ENDED"]
    size: int
    idempotency_key: str | None = Field(
        description="While PENDING: send the request again with this key, within 60 s."
    )
    queuePosition: int | None = Field(description="Position in the queue while PENDING; 1 is next.")
    verdict: str | None = Field(description="With FAILED: of the sandbox that ended before all ran.")
    message: str | None = Field(description="With FAILED: why.")
    sandboxes: list[SandboxResponse] = Field(description="All of them, in the order of the request, or none.")
