"""Exports spans by OTLP over HTTP in a thread of its own, so that no request waits for a collector."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from .span import Counted, Kind, Service, Span

_log = logging.getLogger(__name__)

_MOST = 4096  # spans that wait; further ones are dropped
_BATCH = 64  # spans of an export: the encoding holds Python's lock, and the event loop waits for that
_DELAY = 0.5  # seconds from a span to its export
_TIMEOUT = 10.0  # seconds of an export with its retries
_PATH = "/v1/traces"
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_SCOPE = InstrumentationScope("sandlot_gateway")
_KINDS = {Kind.INTERNAL: SpanKind.INTERNAL, Kind.SERVER: SpanKind.SERVER, Kind.CLIENT: SpanKind.CLIENT}


class Exporter:
    """A sink of spans. While the collector does not take them they wait, and those beyond the bound are dropped."""

    def __init__(self, endpoint: str, *, counted: Counted) -> None:
        """`endpoint`: the collector's base URL; headers and certificates come from OpenTelemetry's environment."""
        self._where = endpoint.rstrip("/") + _PATH
        self._counted = counted
        self._waiting: deque[Span] = deque()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._is_failing = False
        self._told = _LastError()
        self._otlp = OTLPSpanExporter(endpoint=self._where, timeout=_TIMEOUT)
        self._resources = {service: Resource.create({"service.name": service.value}) for service in Service}
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    def add(self, span: Span) -> None:
        """Export a span soon, or drop it if too many wait."""
        waiting = self._waiting
        if len(waiting) >= _MOST:
            self._counted.spans_dropped("queue_full", 1)
            return
        waiting.append(span)
        if len(waiting) == 1:
            self._wake.set()

    async def close(self, *, timeout: float) -> None:
        """Export what waits, within `timeout` seconds. One that was cancelled may come again."""
        self._closing.set()
        self._wake.set()
        await asyncio.to_thread(self._thread.join, 0.8 * timeout)
        self._otlp.shutdown()  # ends the wait for a retry, after which the thread counts the spans
        await asyncio.to_thread(self._thread.join, 0.2 * timeout)
        dropped = len(self._waiting)
        self._waiting.clear()
        if dropped:
            self._counted.spans_dropped("export_failed", dropped)

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._closing.wait(_DELAY)
            self._wake.clear()
            while self._waiting:
                self._export([self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))])
            if self._closing.is_set() and not self._waiting:
                return

    def _export(self, spans: Sequence[Span]) -> None:
        try:
            done = self._otlp.export([self._readable(span) for span in spans]) is SpanExportResult.SUCCESS
        except Exception as error:  # of a library: the thread must outlive it
            self._told.text = f"{type(error).__name__}: {error}"
            done = False
        if done:
            self._counted.spans_exported(len(spans))
            if self._is_failing:
                _log.warning("traces can be exported to %s again", self._where)
        else:
            self._counted.spans_dropped("export_failed", len(spans))
            if not self._is_failing:
                text = "cannot export traces to %s: %s; spans are dropped until it takes them: check the collector"
                _log.error(text, self._where, self._told.text)
        self._is_failing = not done

    def _readable(self, span: Span) -> ReadableSpan:
        parent = None
        if span.parent_id:
            parent = SpanContext(span.trace_id, span.parent_id, is_remote=True, trace_flags=_SAMPLED)
        return ReadableSpan(
            span.name,
            context=SpanContext(span.trace_id, span.span_id, is_remote=False, trace_flags=_SAMPLED),
            parent=parent,
            resource=self._resources[span.service],
            attributes=span.attributes,
            kind=_KINDS[span.kind],
            status=Status() if span.error is None else Status(StatusCode.ERROR, span.error),
            start_time=span.begin,
            end_time=span.end,
            instrumentation_scope=_SCOPE,
        )


class _LastError(logging.Handler):
    """Keeps OpenTelemetry's last error out of the log, where it would repeat with every batch."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = "unknown error"
        logger = logging.getLogger("opentelemetry.exporter")
        logger.propagate = False
        logger.handlers[:] = [self]

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()
