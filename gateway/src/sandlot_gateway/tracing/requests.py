"""Makes the spans of a data plane request from the times that its handler noted and its sidecar answered."""

from __future__ import annotations

from collections.abc import Sequence

from sandlot_contract.trace import TIMING_KEY

from .span import Attributes, Kind, Service
from .trace import Trace, now

Headers = Sequence[tuple[bytes, bytes]]

_STAGES = ("queue", "spawn", "run")
_MOST = 256  # bytes of a sidecar's timings
_LONGEST = 1e12  # milliseconds


def add_sidecar_call(trace: Trace, headers: Headers, *, name: str, error: str | None) -> None:
    """Add the spans of the request's call of its sidecar, which has just ended with these headers."""
    ended = now()
    if trace.queued:
        trace.add("sandlot.queue", trace.queueing, trace.queued, parent=trace.root)
    if trace.connecting:
        trace.add("sandlot.connect", trace.connecting, trace.connected or ended, parent=trace.root)
    if not trace.connected:
        return
    trace.add(
        "sandlot.forward",
        trace.connected,
        ended,
        parent=trace.root,
        span_id=trace.call,
        kind=Kind.CLIENT,
        error=error,
    )
    add_sidecar(trace, headers, name=name, begin=trace.connected, end=ended, parent=trace.call)


def add_sidecar(trace: Trace, headers: Headers, *, name: str, begin: int, end: int, parent: int) -> None:
    """Add the spans of a sidecar's work by its timings, in the middle of the call: half of the way there, half back.

    The clocks of gateway and sidecar differ, so only durations count, and none may exceed the call's.
    """
    timings = parse_timings(headers)
    total = timings.get("total")
    if total is None:
        return
    took = min(total, end - begin)
    at = begin + (end - begin - took) // 2
    sidecar = trace.add(
        f"sandlot.sidecar.{name}", at, at + took, parent=parent, kind=Kind.SERVER, service=Service.SIDECAR
    )
    # A repeated request, which gets the result of an earlier one, waited for less than the command took.
    if sum(timings.get(stage, 0) for stage in _STAGES) > took:
        return
    for stage in _STAGES:
        if stage in timings:
            trace.add(
                f"sandlot.sidecar.{stage}",
                at,
                at + timings[stage],
                parent=sidecar,
                service=Service.SIDECAR,
            )
            at += timings[stage]


def parse_timings(headers: Headers) -> dict[str, int]:
    """Return the known timings of a sidecar's response, in nanoseconds; what is not valid is left out."""
    value = next((value for key, value in headers if key == TIMING_KEY), b"")[:_MOST]
    found: dict[str, int] = {}
    for part in value.split(b","):
        name, _, duration = part.strip().partition(b";dur=")
        stage = name.decode("latin-1")
        if stage not in (*_STAGES, "total"):
            continue
        try:
            milliseconds = float(duration)
        except ValueError:
            continue
        if 0.0 <= milliseconds < _LONGEST:  # also false for nan
            found[stage] = int(milliseconds * 1e6)
    return found


def about(*, sandbox: bytes, op: bytes, request_id: bytes, status: int | str, verdict: bytes) -> Attributes:
    """Return the attributes of a request's own span; each is bounded, for a client chooses some."""
    found: Attributes = {}
    ids = {"sandlot.sandbox.id": sandbox, "sandlot.op.id": op, "sandlot.request.id": request_id}
    for name, value in {**ids, "sandlot.verdict": verdict}.items():
        if value:
            found[name] = value[:128].decode("latin-1")
    if isinstance(status, int):
        found["http.response.status_code"] = status
    return found


def failure(status: int | str) -> str | None:
    """Return the error of a request's span: a status of the server's, or a response that did not arrive."""
    if isinstance(status, int):
        return f"status {status}" if status >= 500 else None
    return status
