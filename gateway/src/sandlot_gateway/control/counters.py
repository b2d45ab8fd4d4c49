"""Counts events of the control API, with cached children of the families in metrics.py."""

from __future__ import annotations

from enum import StrEnum

from prometheus_client import Counter
from sandlot_contract.phases import Event
from sandlot_contract.statuses import Status

from sandlot_gateway.metrics import VERDICTS, Metrics
from sandlot_gateway.quotas import HELD, QuotaName
from sandlot_gateway.sandboxes import Sandbox
from sandlot_gateway.sidecars import ClaimOutcome
from sandlot_gateway.webhooks import WebhookFault

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


_OF_CREATES = (*(quota.name for quota in HELD), QuotaName.CREATES_PER_SECOND)


class CreateRefusal(StrEnum):
    """Reasons for which a create is rejected."""

    QUEUE_FULL = "queue_full"
    QUOTA = "quota"
    BAD_REQUEST = "bad_request"
    CANNOT_START = "cannot_start"


class Counters:
    """Cached metric children: a label look-up for each event would cost more than the count."""

    def __init__(self, metrics: Metrics) -> None:
        self._creates = {
            (source, outcome): metrics.creates.labels(source, outcome)
            for source, outcomes in (("none", CreateRefusal), *((s, ("running", "failed")) for s in _SOURCES))
            for outcome in outcomes
        }
        self._seconds = {source: metrics.create_seconds.labels(source) for source in _SOURCES}
        self._cold = {word: metrics.cold.labels(word) for word in _MISSES}
        self._quota_refusals = {name: metrics.quota_refusals.labels(name) for name in _OF_CREATES}
        self._claims = {outcome: metrics.claims.labels(outcome) for outcome in ClaimOutcome}
        self._webhooks = {event: metrics.webhooks.labels(event) for event in (*Event, *WebhookFault)}
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
        running = sandbox.status is Status.RUNNING
        if sandbox.cold_reason is not None:
            self._cold[sandbox.cold_reason.partition(":")[0]].inc()
        self._creates[source, "running" if running else "failed"].inc()
        if running:
            self._seconds[source].observe(seconds)

    def refused(self, why: CreateRefusal) -> None:
        self._creates["none", why].inc()

    def over_quota(self, quota: QuotaName) -> None:
        self.refused(CreateRefusal.QUOTA)
        self._quota_refusals[quota].inc()

    def ended(self, sandbox: Sandbox) -> None:
        self._ends.get(sandbox.verdict or "", self._ends["other"]).inc()

    def claimed(self, outcome: ClaimOutcome) -> None:
        self._claims[outcome].inc()

    def webhook(self, event: Event | WebhookFault) -> None:
        self._webhooks[event].inc()

    def request(self, status: int) -> None:
        self._requests[status // 100].inc()
