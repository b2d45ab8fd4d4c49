"""The trace context of a request (W3C Trace Context, version 00) and the timings that a sidecar answers with."""

from __future__ import annotations

TRACEPARENT_KEY = b"traceparent"
# W3C Server Timing, in milliseconds: `queue;dur=0.02, spawn;dur=1.4, run;dur=12.9, total;dur=15.1`.
TIMING = "Server-Timing"
TIMING_KEY = b"server-timing"

_SIZE = 55
_HEX = frozenset(b"0123456789abcdef")


def parse_traceparent(value: bytes) -> tuple[str, str, bool] | None:
    """Return trace id, the caller's span id and whether it is sampled; None for all that is not valid.

    The trace id goes into logs, so nothing but lower-case hexadecimal digits may pass.
    """
    if len(value) != _SIZE or value[:3] != b"00-" or value[35:36] != b"-" or value[52:53] != b"-":
        return None
    trace_id, span_id, flags = value[3:35], value[36:52], value[53:]
    if not _HEX.issuperset(trace_id + span_id + flags):
        return None
    if trace_id == b"0" * 32 or span_id == b"0" * 16:
        return None
    return trace_id.decode(), span_id.decode(), bool(int(flags, 16) & 1)
