"""What a create uses in place of one of E2B's templates."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Template:
    """Exactly one of these is set."""

    pool: str | None = None
    image: str | None = None
    checkpoint: str | None = None
