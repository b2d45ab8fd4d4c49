"""Defines the gateway's Prometheus metrics, with fixed label sets; no label names a sandbox."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from sandlot_contract.verdicts import CommandVerdict, SandboxVerdict

ROUTES = ("exec", "ops", "rpc", "files", "logs", "terminal", "expose", "e2b", "other")
ReloadedFile = Literal["api_keys", "quotas", "prices", "master_key", "certificate", "sidecar_tls"]
RELOADED: tuple[ReloadedFile, ...] = get_args(ReloadedFile)
DatagramDirection = Literal["to_sandbox", "to_client"]
DropReason = Literal[
    "too_many_flows",
    "too_many_bytes",
    "no_connection",
    "too_long",
    "sandbox_slow",
    "client_slow",
    "refused",
    "unasked",
]
StreamEnd = Literal["complete", "left", "leaving", "expired", "stalled", "key_withdrawn"]
# `refused`: nothing listens there, and only polls that wait for a starting sidecar to listen asked for the attempt.
DialResult = Literal["ok", "failed", "refused"]
WebhookOutcome = Literal["delivered", "retried", "rejected", "lost"]
CODES = ("1xx", "2xx", "3xx", "4xx", "5xx", "gone", "cut")
# docs/sidecar-contract.md. "none" for a response without a verdict, "other" for one that is not in the contract:
# an upstream must not be able to add label values.
_ENDS = tuple(verdict for verdict in SandboxVerdict if verdict is not SandboxVerdict.GIVEN_BACK)
VERDICTS = tuple(dict.fromkeys(("none", "other", *CommandVerdict, *_ENDS)))
_VERDICT_NAMES = {name.encode(): name for name in VERDICTS}

_EXEC_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)  # fmt: skip
_READY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)  # fmt: skip
_CREATE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)  # fmt: skip


class RouteMetrics:
    """The cached children of one route class, so that a request costs no label look-up.

    `in_flight` is a plain number that is read at each scrape.
    """

    def __init__(self, name: str, *, requests: Counter, seconds: Histogram) -> None:
        self.name = name
        self.in_flight = 0
        self.seconds = seconds.labels(name)
        self._requests = requests
        self._children = {
            (status, b""): requests.labels(name, f"{status // 100}xx", "none") for status in (200,)
        }

    def finished(self, status: int, *, verdict: bytes, seconds: float) -> None:
        """Count an answered request; `seconds` from its arrival to the last byte handed to the client."""
        child = self._children.get((status, verdict))
        if child is None:
            name = _VERDICT_NAMES.get(verdict, "other") if verdict else "none"
            child = self._requests.labels(self.name, f"{status // 100}xx", name)
            if 100 <= status < 600 and name != "other":
                self._children[status, verdict] = child
        child.inc()
        self.seconds.observe(seconds)

    def unfinished(self, code: str) -> None:
        """Count a request without a complete response: `gone` (client left) or `cut` (failed inside it)."""
        self._requests.labels(self.name, code, "none").inc()


class Metrics:
    """The metrics of one gateway, in a registry of its own, so that tests can run several."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        registry = self.registry
        requests = Counter(
            "sandlot_requests", "Data plane requests.", ["route", "code", "verdict"], registry=registry
        )
        seconds = Histogram(
            "sandlot_request_seconds",
            "Data plane requests from arrival to the last byte.",
            ["route"],
            buckets=_EXEC_BUCKETS,
            registry=registry,
        )
        self.routes = {name: RouteMetrics(name, requests=requests, seconds=seconds) for name in ROUTES}
        self.create_seconds = Histogram(
            "sandlot_create_seconds",
            "Create requests from arrival to a usable sandbox.",
            ["source"],  # warm, cold
            buckets=_CREATE_BUCKETS,
            registry=registry,
        )
        self.creates = Counter(
            "sandlot_creates", "Create requests by their end.", ["source", "outcome"], registry=registry
        )
        self.quota_refusals = Counter(
            "sandlot_quota_refusals",
            "Create requests rejected because of a tenant's quota.",
            ["quota"],
            registry=registry,
        )
        self.cold = Counter(
            "sandlot_cold_creates",
            "Cold starts of creates although a pool has their image.",
            ["reason"],
            registry=registry,
        )
        self.claims = Counter("sandlot_claims", "Claims sent to sidecars.", ["outcome"], registry=registry)
        self.ends = Counter("sandlot_sandbox_ends", "Ended sandboxes.", ["verdict"], registry=registry)
        self.rejected = Counter(
            "sandlot_rejected",
            "Requests rejected because a queue was full.",
            ["route", "scope"],
            registry=registry,
        )
        # A counter that first appears with its first event shows Prometheus no increase by it.
        for name in ROUTES:
            for scope in ("sandbox", "gateway"):
                self.rejected.labels(name, scope)
        self.queue_seconds = Histogram(
            "sandlot_queue_seconds",
            "Queueing time of the requests that had to wait.",
            buckets=_EXEC_BUCKETS,
            registry=registry,
        )
        self.ready_seconds = Histogram(
            "sandlot_ready_seconds",
            "Time from a sidecar's readiness to its entry in the ready queue, by the nodes' clocks.",
            buckets=_READY_BUCKETS,
            registry=registry,
        )
        self.ready_queue = Gauge(
            "sandlot_ready_queue_depth", "Warm instances that can be claimed.", ["pool"], registry=registry
        )
        self.pool_size = Gauge(
            "sandlot_pool_size", "Target number of warm instances.", ["pool"], registry=registry
        )
        self.sandboxes = Gauge("sandlot_sandboxes", "Sandboxes by status.", ["status"], registry=registry)
        self.records_refused = Counter(
            "sandlot_records_refused",
            "Records that the API server rejected permanently.",
            ["what"],
            registry=registry,
        )
        self.webhooks = Counter("sandlot_webhooks", "Webhooks from sidecars.", ["event"], registry=registry)
        audited = Counter("sandlot_audit_records", "Audit records.", ["outcome"], registry=registry)
        self._audit_written, self._audit_lost = audited.labels("written"), audited.labels("lost")
        self._audit_write_failures = Counter(
            "sandlot_audit_write_failures", "Failed writes of audit records.", registry=registry
        )
        self._reload_failing = Gauge(
            "sandlot_reload_failing",
            "1 while a changed file cannot be used, and the earlier state stays.",
            ["file"],
            registry=registry,
        )
        for file in RELOADED:
            self.reload_failing(file, False)
        spans = Counter(
            "sandlot_trace_spans", "Spans of traces by what became of them.", ["outcome"], registry=registry
        )
        self._spans = {name: spans.labels(name) for name in ("exported", "queue_full", "export_failed")}
        self._traces_limited = Counter(
            "sandlot_traces_limited",
            "Requests that were not traced because their tenant had its traces of that second.",
            registry=registry,
        )
        streams = Counter(
            "sandlot_event_streams_ended", "Ended event streams.", ["reason"], registry=registry
        )
        self._event_streams_ended = {reason: streams.labels(reason) for reason in get_args(StreamEnd)}
        webhooks = Counter(
            "sandlot_event_webhooks", "Webhooks of events, by outcome.", ["outcome"], registry=registry
        )
        self._event_webhooks = {outcome: webhooks.labels(outcome) for outcome in get_args(WebhookOutcome)}
        dials = Counter("sandlot_dials", "Attempts to connect to upstreams.", ["result"], registry=registry)
        self._dials: dict[DialResult, Counter] = {each: dials.labels(each) for each in get_args(DialResult)}
        self._udp_flows = Gauge("sandlot_udp_flows", "Clients of UDP exposures.", registry=registry)
        carried = Counter(
            "sandlot_datagrams", "Datagrams of UDP exposures.", ["direction"], registry=registry
        )
        self._datagrams = {name: carried.labels(name) for name in get_args(DatagramDirection)}
        dropped = Counter(
            "sandlot_datagrams_dropped", "Dropped datagrams of UDP exposures.", ["reason"], registry=registry
        )
        self._datagrams_dropped = {name: dropped.labels(name) for name in get_args(DropReason)}
        self._live = _LiveGauges()
        registry.register(self._live)
        for name, route in self.routes.items():
            self.live(
                "sandlot_in_flight",
                "Data plane requests in flight.",
                label=("route", name),
                read=lambda route=route: route.in_flight,
            )

    def reload_failing(self, file: ReloadedFile, failing: bool) -> None:
        """Note whether the last change of the file could not be used."""
        self._reload_failing.labels(file).set(failing)

    def event_stream_ended(self, reason: StreamEnd) -> None:
        self._event_streams_ended[reason].inc()

    def event_webhook(self, outcome: WebhookOutcome) -> None:
        self._event_webhooks[outcome].inc()

    def dialled(self, result: DialResult) -> None:
        self._dials[result].inc()

    def audit_written(self, records: int) -> None:
        self._audit_written.inc(records)

    def audit_lost(self, records: int) -> None:
        self._audit_lost.inc(records)

    def audit_write_failed(self) -> None:
        self._audit_write_failures.inc()

    def spans_exported(self, spans: int) -> None:
        self._spans["exported"].inc(spans)

    def spans_dropped(self, reason: str, spans: int) -> None:
        self._spans[reason].inc(spans)

    def trace_limited(self) -> None:
        self._traces_limited.inc()

    def udp_flows(self, flows: int) -> None:
        self._udp_flows.set(flows)

    def datagrams_carried(self, direction: DatagramDirection, datagrams: int) -> None:
        self._datagrams[direction].inc(datagrams)

    def datagrams_dropped(self, reason: DropReason, datagrams: int) -> None:
        self._datagrams_dropped[reason].inc(datagrams)

    def live(
        self, name: str, text: str, *, read: Callable[[], float], label: tuple[str, str] | None = None
    ) -> None:
        """Add a gauge whose value is read at each scrape."""
        self._live.add(name, text, label=label, read=read)

    def text(self) -> bytes:
        """Return all metrics in the text format, version 0.0.4."""
        return generate_latest(self.registry)


class _LiveGauges(Collector):
    def __init__(self) -> None:
        self._gauges: dict[str, tuple[str, list[tuple[tuple[str, str] | None, Callable[[], float]]]]] = {}

    def add(self, name: str, text: str, *, label: tuple[str, str] | None, read: Callable[[], float]) -> None:
        self._gauges.setdefault(name, (text, []))[1].append((label, read))

    def collect(self):
        for name, (text, readers) in self._gauges.items():
            label = readers[0][0]
            family = GaugeMetricFamily(name, text, labels=[label[0]] if label else [])
            for label, read in readers:
                family.add_metric([label[1]] if label else [], read())
            yield family
