"""Defines a request for an image, and the operator's limits."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from .images import Auth


@dataclass(frozen=True, kw_only=True)
class Request:
    """An image that a tenant wants, with its credentials if the image is private."""

    reference: str
    tenant: str | None = None
    auth: Auth | None = None


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The operator's limits; times in seconds."""

    registries: Collection[str] = ()
    pulls: int = 4
    min_free: int = 0
    failure_seconds: float = 5.0
    use_grace: float = 60.0
