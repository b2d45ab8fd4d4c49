"""Types of the fields of request and response models: validators and limits."""

from __future__ import annotations

import re
from typing import Annotated, Literal, cast

from fastapi import Path
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    field_validator,
)
from sandlot_contract.ids import SandboxId

from sandlot_gateway.core.fair_queue import MOST_WEIGHT
from sandlot_gateway.core.tenant_queue import MOST_PRIORITY

_HALF = re.compile("[\ud800-\udfff]")  # of a surrogate pair
_RUN_NAME = re.compile("[A-Za-z0-9._-]{1,63}")
_SERVICE_NAME = re.compile("[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
MINUTES_MAX = 5_256_000  # ten years


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _no_nul(value: object) -> object:
    if isinstance(value, str) and "\x00" in value:
        raise ValueError("must not contain a NUL character")
    return value


def _has_half_a_pair(value: object) -> bool:
    left = [value]
    while left:
        # Not by recursion: JSON may be nested more deeply than Python's stack allows.
        match left.pop():
            case str() as text if _HALF.search(text):
                return True
            case list() as items:
                left.extend(cast("list[object]", items))
            case dict() as fields:
                known = cast("dict[object, object]", fields)
                left.extend((*known.keys(), *known.values()))
            case _:
                pass
    return False


def _run_name(value: str) -> str:
    if not _RUN_NAME.fullmatch(value):
        raise ValueError("must be 1 to 63 of the characters A-Z a-z 0-9 . _ -")
    return value


def _service_name(value: str) -> str:
    if not _SERVICE_NAME.fullmatch(value) or value == "localhost":
        raise ValueError(
            "must be 1 to 63 of the characters a-z 0-9 -, beginning with a letter and not ending with -,"
            " and not localhost"
        )
    return value


def unique(value: object) -> object:
    """Validate that a list has no id twice."""
    if isinstance(value, list) and len({repr(item) for item in value}) != len(value):
        raise ValueError("must not contain an id twice")
    return value


_Whole = BeforeValidator(_whole)  # JSON Schema, and some clients, treat 60.0 as an integer
# The limits come before the validator: after it they would be missing in the schema.
Pids = Annotated[int, Field(ge=16, le=4_194_304), _Whole]
GpuCount = Annotated[int, Field(ge=0, le=8), _Whole]
Lifetime = Annotated[int, Field(ge=-MINUTES_MAX, le=MINUTES_MAX), _Whole]
Minutes = Annotated[int, Field(ge=1, le=MINUTES_MAX), _Whole]
SshSeconds = Annotated[int, Field(ge=1, le=3600), _Whole]
Port = Annotated[int, Field(ge=1, le=65535), _Whole]
Uses = Annotated[int, Field(ge=1, le=1_000_000), _Whole]
WholeNumber = Annotated[int, _Whole]
MOST_OF_GROUP = 512
GroupCount = Annotated[int, Field(ge=1, le=MOST_OF_GROUP), _Whole]
RunWeight = Annotated[int, Field(ge=1, le=MOST_WEIGHT), _Whole]
RunPriority = Annotated[int, Field(ge=-MOST_PRIORITY, le=MOST_PRIORITY), _Whole]
PoolSize = Annotated[int, Field(ge=0, le=10_000), _Whole]
Text = Annotated[str, BeforeValidator(_no_nul)]
Label = Annotated[str, Field(min_length=1, max_length=128), BeforeValidator(_no_nul)]
RunName = Annotated[
    str, AfterValidator(_run_name), WithJsonSchema({"type": "string", "pattern": f"^{_RUN_NAME.pattern}$"})
]
ServiceName = Annotated[
    str,
    AfterValidator(_service_name),
    WithJsonSchema({"type": "string", "pattern": f"^{_SERVICE_NAME.pattern}$"}),
]
SandboxIdText = Annotated[SandboxId, Field(min_length=1, max_length=128)]
# What follows /sandbox/ in other routes, so that a request with such an id would reach one of those. No sandbox has one.
NO_SANDBOX_IDS = (
    "background-jobs",
    "checkpoints",
    "checkpoints:batchGet",
    "expose",
    "networks",
    "status:batchGet",
    "volumes",
)
SandboxIdInPath = Annotated[SandboxId, Path(json_schema_extra={"not": {"enum": list(NO_SANDBOX_IDS)}})]
WireStatus = Literal["PENDING", "PROVISIONING", "RUNNING", "PAUSED", "ERROR", "TERMINATED", "TIMEOUT"]


class Strict(BaseModel):
    """Base of request models: known fields must have their type, unknown ones (of other versions) are ignored."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _can_be_sent_on(cls, value: object) -> object:
        """Reject unpaired surrogates, which JSON can express and UTF-8 cannot: they could not be stored."""
        if _has_half_a_pair(value):
            raise ValueError("must not contain an unpaired surrogate")
        return value
