"""What a create uses in place of one of E2B's templates."""

from __future__ import annotations

from dataclasses import dataclass

from sandlot_gateway.e2b_template import E2bTemplate

from .saved import Saved


@dataclass(frozen=True, slots=True)
class Template:
    """Exactly one of `pool`, `image` and `checkpoint` is set; `saved`: what a template or a snapshot sets besides."""

    pool: str | None = None
    image: str | None = None
    checkpoint: str | None = None
    saved: Saved | None = None
    name: str | None = None  # of a template of the tenant

    @property
    def ready(self) -> str | None:
        return None if self.saved is None else self.saved.ready

    @property
    def kept(self) -> E2bTemplate:
        """Return what a sandbox keeps of it."""
        own = self.saved.template if self.saved is not None and self.name is not None else ""
        return E2bTemplate(own or self.pool or self.image or self.checkpoint or "", self.name)
