"""A finished span as the gateway queues it: plain data, which the exporter's thread turns into OpenTelemetry's."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple, Protocol

Attributes = dict[str, str | int | float | bool]


class Kind(Enum):
    """OpenTelemetry's kinds of spans that occur here."""

    INTERNAL = auto()
    SERVER = auto()
    CLIENT = auto()


class Service(Enum):
    """The part whose work a span shows; its value is the `service.name`."""

    GATEWAY = "sandlot-gateway"
    SIDECAR = "sandlot-sidecar"


class Span(NamedTuple):
    """Times are nanoseconds since the epoch, ids numbers."""

    name: str
    trace_id: int
    span_id: int
    parent_id: int  # 0: none
    begin: int
    end: int
    kind: Kind
    service: Service
    attributes: Attributes
    error: str | None  # what failed


class Sink(Protocol):
    """Takes finished spans; `add` never blocks and never raises."""

    def add(self, span: Span) -> None: ...

    async def close(self, *, timeout: float) -> None: ...


class Counted(Protocol):
    """Counts what becomes of spans; see metrics.py."""

    def spans_exported(self, spans: int) -> None: ...

    def spans_dropped(self, reason: str, spans: int) -> None: ...

    def trace_limited(self) -> None: ...
