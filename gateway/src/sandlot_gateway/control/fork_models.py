"""The request model of forks; the response is that of a group."""

from __future__ import annotations

from pydantic import Field, model_validator

from sandlot_gateway.control.field_types import MINUTES_MAX, GroupCount, Label, Strict, Text
from sandlot_gateway.control.group_models import MOST_DEADLINE
from sandlot_gateway.control.models import StartCommand
from sandlot_gateway.control.variable_checks import check_variables


class ForkRequest(Strict):
    """What is left out is as the sandbox was created; null means the same."""

    count: GroupCount = 1
    same_start_command: bool | None = Field(
        None, description="true: run the sandbox's start command; default: none runs."
    )
    start_command: Text | list[Text] | StartCommand | None = Field(
        None, description="Another one: a string for a shell, `{executable, args}`, or an argv."
    )
    name: Text | None = Field(
        None, min_length=1, max_length=90, description="Of each, followed by `-` and its number."
    )
    labels: list[Label] | None = Field(None, max_length=64, description="In place of the sandbox's.")
    secrets: dict[str, Text] | None = Field(
        None,
        max_length=1024,
        description="Values of the sandbox's secrets that were in its create, which no gateway keeps; and others.",
    )
    timeout_seconds: float | None = Field(
        None,
        gt=0,
        le=MINUTES_MAX * 60,
        description="Lifetime from the claim, the copy of the files included; default: as the sandbox's create.",
    )
    idempotency_key: str | None = Field(
        None,
        min_length=1,
        max_length=128,
        description="Requests for the same sandbox with the same key get the same forks.",
    )
    wait_seconds: float | None = Field(
        None, ge=0, le=25, description="Seconds to wait for all forks before answering; default 10."
    )
    deadline_seconds: float | None = Field(
        None,
        gt=0,
        le=MOST_DEADLINE,
        description="Seconds from the first request in which all forks must run, else none; default 300.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> ForkRequest:
        check_variables({}, self.secrets or {})
        if self.same_start_command and self.start_command:
            raise ValueError("start_command: same_start_command is set, too: leave one of the two out")
        return self
