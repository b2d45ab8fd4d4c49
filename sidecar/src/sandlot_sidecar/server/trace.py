"""The trace of a request: ids for the log, and timings in the answer, of which the gateway makes spans.

The sidecar sends no spans itself: it needs no network and no further package.
"""

from __future__ import annotations

import time

from sandlot_contract.trace import TIMING, TRACEPARENT_KEY, parse_traceparent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..core.op import Op
    from .request import Request

MAX_ID = 128  # characters of a client's request id

monotonic = time.monotonic


class Trace:
    """The trace of one request. `ids`: fields for log lines; `sampled`: the gateway asks for timings."""

    __slots__ = ("begun", "ids", "ran", "sampled", "spawned")

    def __init__(self, ids: dict[str, str], *, sampled: bool) -> None:
        self.ids = ids
        self.sampled = sampled
        self.begun = monotonic()
        self.spawned: float | None = None  # seconds that the runner took to start the process
        self.ran: float | None = None  # seconds from then to the end of the process

    def timing(self, op: Op | None = None) -> tuple[tuple[str, str], ...]:
        """Return the header with the timings of a response that is sent now."""
        if not self.sampled:
            return ()
        seconds: dict[str, float] = {}
        if op is not None and op.trace is self and op.started is not None:
            seconds["queue"] = op.started - op.created
            if self.spawned is not None and self.ran is not None:
                seconds["spawn"], seconds["run"] = self.spawned, self.ran
        seconds["total"] = monotonic() - self.begun
        return ((TIMING, ", ".join(f"{name};dur={1000 * value:.3f}" for name, value in seconds.items())),)


def ids(trace: Trace | None) -> dict[str, str]:
    """Return the fields of a trace for a log line."""
    return {} if trace is None else trace.ids


def of(request: Request) -> Trace | None:
    """Return the request's trace, None without a valid traceparent."""
    value = request.headers.get(TRACEPARENT_KEY)
    context = None if value is None else parse_traceparent(bytes(value))
    if context is None:
        return None
    found = {"trace_id": context[0]}
    request_id = request.header(b"x-request-id")
    if request_id:
        found["request"] = request_id[:MAX_ID]
    return Trace(found, sampled=context[2])
