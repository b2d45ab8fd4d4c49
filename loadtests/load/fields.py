"""What the schema's structs share: strictness, counts and seconds."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]


class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A struct without unknown fields."""


def one_of(struct: msgspec.Struct, *fields: str) -> str:
    """Return the only one of these fields that is set. Raises ValueError."""
    chosen = [field for field in fields if getattr(struct, field) is not None]
    if len(chosen) != 1:
        had = " and ".join(chosen) or "none"
        raise ValueError(f"needs exactly one of {', '.join(fields)}; it has {had}")
    return chosen[0]
