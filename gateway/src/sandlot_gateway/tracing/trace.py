"""The gateway's part of one trace: its ids, the header for the sidecar, and the spans of a sampled one."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from sandlot_contract.trace import TRACEPARENT_KEY

from .span import Attributes, Kind, Service, Sink, Span

now = time.perf_counter_ns  # times of spans until they are added


def new_span_id() -> int:
    """Return a span id, which is never 0."""
    return random.getrandbits(64) or 1


class Trace:
    """One request of a trace. Without a sink it is not sampled: it has ids for logs, and no spans."""

    __slots__ = (
        "_epoch",
        "_parent",
        "_sink",
        "_tenant",
        "begun",
        "call",
        "connected",
        "connecting",
        "id",
        "queued",
        "queueing",
        "root",
    )

    def __init__(self, trace_id: str, *, parent: str | None, tenant: str, sink: Sink | None) -> None:
        self.id = trace_id
        self._tenant = tenant
        self.root = new_span_id() if sink is not None else 0  # the request's own span
        self.call = new_span_id() if sink is not None else 0  # its call of the sidecar
        self.begun = now()
        # Marks of a data plane request, 0 for what did not happen.
        self.queueing = self.queued = self.connecting = self.connected = 0
        self._parent = parent
        self._sink = sink
        self._epoch = time.time_ns() - self.begun

    @property
    def sampled(self) -> bool:
        return self._sink is not None

    def header(self, span_id: int) -> tuple[bytes, bytes]:
        """Return the header for a sidecar, whose caller is this span."""
        if self._sink is None:
            return TRACEPARENT_KEY, f"00-{self.id}-{self._parent}-00".encode()
        return TRACEPARENT_KEY, f"00-{self.id}-{span_id:016x}-01".encode()

    def add(
        self,
        name: str,
        begin: int,
        end: int,
        *,
        parent: int,
        span_id: int = 0,
        kind: Kind = Kind.INTERNAL,
        service: Service = Service.GATEWAY,
        attributes: Attributes | None = None,
        error: str | None = None,
    ) -> int:
        """Add a finished span, with times of `now`; return its id."""
        span_id = span_id or new_span_id()
        if self._sink is not None:
            epoch = self._epoch
            self._sink.add(
                Span(
                    name,
                    int(self.id, 16),
                    span_id,
                    parent,
                    epoch + begin,
                    epoch + max(begin, end),
                    kind,
                    service,
                    attributes or {},
                    error,
                )
            )
        return span_id

    def finish(self, name: str, *, begin: int, attributes: Attributes, error: str | None) -> None:
        """Add the span of the request itself, which ends now."""
        parent = int(self._parent, 16) if self._parent else 0
        self.add(
            name,
            begin,
            now(),
            parent=parent,
            span_id=self.root,
            kind=Kind.SERVER,
            # A caller chooses its trace id, and could choose another tenant's.
            attributes={**attributes, "sandlot.tenant": self._tenant},
            error=error,
        )


# Of the create that runs in this context, also after its request was answered.
current: ContextVar[Trace | None] = ContextVar("trace", default=None)


class Stage:
    """A step of a create while it runs; `span_id` is 0 if the create is not traced."""

    __slots__ = ("attributes", "begun", "error", "span_id", "trace")

    def __init__(self, trace: Trace | None) -> None:
        """`trace`: without one, nothing is added."""
        self.trace = trace
        self.span_id = new_span_id() if trace is not None else 0
        self.begun = now()
        self.attributes: Attributes = {}
        self.error: str | None = None

    def header(self) -> list[tuple[bytes, bytes]]:
        """Return the header for a sidecar that this step calls; none without a trace."""
        return [] if self.trace is None else [self.trace.header(self.span_id)]

    def add_last(self, name: str, *, seconds: float) -> None:
        """Add a span of the last part of this step, which ends now."""
        if self.trace is not None and seconds > 0:
            end = now()
            begin = max(self.begun, end - round(seconds * 1e9))
            self.trace.add(name, begin, end, parent=self.span_id)


@contextmanager
def stage(name: str, *, kind: Kind = Kind.INTERNAL) -> Iterator[Stage]:
    """Add a span of the current create around a step; an exception is its error."""
    trace = current.get()
    step = Stage(trace)
    try:
        yield step
    except BaseException as error:
        step.error = type(error).__name__
        raise
    finally:
        if step.trace is not None:
            step.trace.add(
                name,
                step.begun,
                now(),
                parent=step.trace.root,
                span_id=step.span_id,
                kind=kind,
                attributes=step.attributes,
                error=step.error,
            )
