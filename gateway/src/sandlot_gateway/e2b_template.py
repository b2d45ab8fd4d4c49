"""The template that a create over E2B's wire asked for, which its sandbox keeps through pauses and forks."""

from __future__ import annotations

import msgspec


class E2bTemplate(msgspec.Struct, frozen=True, omit_defaults=True):
    """`id`: a tenant's template, else a pool, an image or a snapshot; `name`: of a tenant's template."""

    id: str
    name: str | None = None
