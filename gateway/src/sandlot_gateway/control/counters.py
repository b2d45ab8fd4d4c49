"""What the control side counts, as cached children of metrics.py's families."""

from __future__ import annotations

from prometheus_client import Counter
from sandlot_contract.phases import Event

from sandlot_gateway.metrics import VERDICTS, Metrics
from sandlot_gateway.sandboxes import Sandbox

_OUTCOMES = ("claimed", "taken", "stale", "gone", "unreachable", "uncertain", "refused")
_EVENTS = (*Event, "other", "unsigned", "malformed", "too_many")
_REFUSALS = ("queue_full", "quota", "bad_request", "cannot_start")
_SOURCES = ("warm", "cold")
_MISSES = (
    "none_ready",
    "taken",
    "cpu_cores",
    "memory_gb",
    "disk_size_gb",
    "pids",
    "gpu_count",
    "gpu_type",
    "runtime_class",
)


class Counters:
    """Children are made once: a label look-up on every event would cost more than the count."""

    def __init__(self, metrics: Metrics) -> None:
        self._creates = {
            (source, outcome): metrics.creates.labels(source, outcome)
            for source, outcomes in (("none", _REFUSALS), *((s, ("running", "failed")) for s in _SOURCES))
            for outcome in outcomes
        }
        self._seconds = {source: metrics.create_seconds.labels(source) for source in _SOURCES}
        self._cold = {word: metrics.cold.labels(word) for word in _MISSES}
        self._claims = {outcome: metrics.claims.labels(outcome) for outcome in _OUTCOMES}
        self._webhooks = {event: metrics.webhooks.labels(event) for event in _EVENTS}
        self._ends = {verdict: metrics.ends.labels(verdict) for verdict in VERDICTS}
        requests = Counter(
            "sandlot_control_requests",
            "Control requests by class of status.",
            ["code"],
            registry=metrics.registry,
        )
        self._requests = {digit: requests.labels(f"{digit}xx") for digit in range(1, 6)}

    def created(self, sandbox: Sandbox, *, seconds: float) -> None:
        source = "warm" if sandbox.pool_hit else "cold"
        running = sandbox.status == "RUNNING"
        if sandbox.cold_reason is not None:
            self._cold[sandbox.cold_reason.partition(":")[0]].inc()
        self._creates[source, "running" if running else "failed"].inc()
        if running:
            self._seconds[source].observe(seconds)

    def refused(self, why: str) -> None:
        self._creates["none", why].inc()

    def ended(self, sandbox: Sandbox) -> None:
        self._ends.get(sandbox.verdict or "", self._ends["other"]).inc()

    def claimed(self, outcome: str) -> None:
        self._claims[outcome].inc()

    def webhook(self, event: str) -> None:
        self._webhooks[event].inc()

    def request(self, status: int) -> None:
        self._requests[status // 100].inc()
