"""Builds a gateway's tracing from its settings."""

from __future__ import annotations

import errno
from typing import Protocol

from .sampling import Sampler
from .span import Counted
from .tracing import Tracing


class Settings(Protocol):
    trace_endpoint: str | None
    trace_ratio: float
    trace_limit: int


def tracing_of(settings: Settings, *, counted: Counted) -> Tracing:
    """Return the tracing, which without an endpoint samples nothing. Raises OSError if a package is missing."""
    if settings.trace_endpoint is None:
        return Tracing()
    try:
        from .exporter import Exporter
    except ModuleNotFoundError as error:
        text = f"--trace-endpoint needs the package {error.name}: install sandlot-gateway[traces]"
        raise OSError(errno.ENOPKG, text) from error
    exporter = Exporter(settings.trace_endpoint, counted=counted)
    sampler = Sampler(ratio=settings.trace_ratio, limit=settings.trace_limit, limited=counted.trace_limited)
    return Tracing(sampler=sampler, sink=exporter)
