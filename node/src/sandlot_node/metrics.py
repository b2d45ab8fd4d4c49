"""Prometheus metrics of the node agent; none names an image or a tenant, since every scraper reads them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from .failures import Kind
from .ledger import Ledger

# What `Preparer` refuses before a preparation begins.
_BEFORE = (Kind.INVALID, Kind.NOT_ALLOWED, Kind.IN_USE)

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)


class Metrics:
    """Metrics of one agent, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.preparations = Counter(
            "sandlot_node_preparations",
            "Preparations that ended, by `ok` or the kind of failure.",
            ["result"],
            registry=self.registry,
        )
        # A counter that first appears with its first event shows Prometheus no increase by it.
        for result in ("ok", *(kind for kind in Kind if kind not in _BEFORE)):
            self.preparations.labels(result)
        self.prepare_seconds = Histogram(
            "sandlot_node_prepare_seconds",
            "Seconds of a preparation that went well, with its wait for others.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.pulled_bytes = Counter(
            "sandlot_node_pulled_bytes",
            "Bytes that pulls fetched, as they are in the registry; layers that the node had are not among them.",
            registry=self.registry,
        )
        self.evictions = Counter(
            "sandlot_node_evictions",
            "Images released because of the budget or a full disk.",
            registry=self.registry,
        )
        self.mirrors = Gauge(
            "sandlot_node_mirror_active",
            "1 while the node pulls from this registry through its cache, as far as containerd tells, else 0.",
            ["registry"],
            registry=self.registry,
        )
        self._images = Gauge("sandlot_node_images", "Prepared images.", registry=self.registry)
        self._in_use = Gauge(
            "sandlot_node_images_in_use", "Prepared images that a slot uses.", registry=self.registry
        )
        self._bytes = Gauge(
            "sandlot_node_image_bytes", "Bytes on disk of the prepared images.", registry=self.registry
        )
        self._budget = Gauge("sandlot_node_budget_bytes", "Bytes that they may have.", registry=self.registry)

    def text(self, ledger: Ledger) -> bytes:
        """Return the page. The gauges are counted for it only: a claim waits for each change of the ledger."""
        self._images.set(len(ledger.entries))
        self._in_use.set(sum(bool(entry.uses) for entry in ledger.entries.values()))
        self._bytes.set(ledger.used())
        self._budget.set(ledger.budget)
        return generate_latest(self.registry)
