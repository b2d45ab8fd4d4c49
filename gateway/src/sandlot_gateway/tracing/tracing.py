"""Begins the traces of authenticated requests."""

from __future__ import annotations

import random

from sandlot_contract.trace import TRACEPARENT_KEY, parse_traceparent

from sandlot_gateway import logs

from .sampling import Sampler
from .span import Sink
from .trace import Trace

_LINE = TRACEPARENT_KEY + b":"


class Tracing:
    """One per gateway. Without a sink nothing is sampled, and a valid traceparent only puts its id into logs."""

    def __init__(self, *, sampler: Sampler | None = None, sink: Sink | None = None) -> None:
        self._sampler = sampler
        self._sink = sink
        # Whether a request without a traceparent may be traced, so that others cost one comparison.
        self.samples = sampler is not None and sink is not None and sampler.ratio > 0

    def enter(self, traceparent: bytes, *, tenant: str) -> Trace | None:
        """Return the trace of a request with this header, b"" for none; None if it has none and is not sampled.

        Only for authenticated requests: others must not use up a tenant's traces. The id goes into the logs of this
        context.
        """
        caller = parse_traceparent(traceparent) if traceparent else None
        sampled = (
            self._sampler is not None
            and self._sink is not None
            and self._sampler.samples(None if caller is None else caller[2], tenant)
        )
        if caller is None and not sampled:
            return None
        trace_id = f"{random.getrandbits(128) or 1:032x}" if caller is None else caller[0]
        logs.trace_id.set(trace_id)
        parent = None if caller is None else caller[1]
        return Trace(trace_id, parent=parent, tenant=tenant, sink=self._sink if sampled else None)

    async def close(self, *, timeout: float) -> None:
        """Export the last spans, within `timeout` seconds. One that was cancelled may come again."""
        if self._sink is not None:
            await self._sink.close(timeout=timeout)


def without_traceparent(lines: list[bytes]) -> list[bytes]:
    """Return header lines without a client's traceparent, in whose place the gateway sends its own."""
    return [line for line in lines if not line.startswith(_LINE)]
