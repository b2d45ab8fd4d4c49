"""What a create uses in place of one of E2B's templates."""

from __future__ import annotations

from dataclasses import dataclass

from .saved import Saved


@dataclass(frozen=True, slots=True)
class Template:
    """Exactly one of `pool`, `image` and `checkpoint` is set; `saved`: what a template of the tenant sets besides."""

    pool: str | None = None
    image: str | None = None
    checkpoint: str | None = None
    saved: Saved | None = None
