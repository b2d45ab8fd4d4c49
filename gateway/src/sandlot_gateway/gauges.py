"""Exports metrics that are read from the gateway's parts at each scrape."""

from __future__ import annotations

from sandlot_gateway.core.backend import Backend
from sandlot_gateway.directory import Directory
from sandlot_gateway.engine.supply import Supply
from sandlot_gateway.events.service import Events
from sandlot_gateway.metrics import Metrics


class Gauges:
    def __init__(
        self, metrics: Metrics, *, supply: Supply, directory: Directory, backend: Backend, events: Events
    ) -> None:
        self._metrics = metrics
        self._supply = supply
        self._directory = directory
        self._backend = backend
        live = metrics.live
        live(
            "sandlot_creates_waiting", "Create requests waiting for an instance.", read=lambda: supply.waiting
        )
        live("sandlot_starts_in_flight", "Cold starts in flight.", read=lambda: supply.starting)
        live(
            "sandlot_ready_instances", "Warm instances without an owner.", read=lambda: len(supply.slots.warm)
        )
        live("sandlot_live_sandboxes", "Live sandboxes.", read=lambda: directory.total_live)

        live("sandlot_event_streams", "Open event streams.", read=lambda: events.streams)
        live("sandlot_events_kept", "Events that streams can go back to.", read=lambda: len(events.journal))
        live("sandlot_events_kept_bytes", "Their memory.", read=lambda: events.journal.bytes)

    def text(self) -> bytes:
        """Return all of the gateway's metrics in Prometheus' text format."""
        metrics = self._metrics
        # A deleted pool would keep its last size for as long as this gateway runs.
        metrics.pool_size.clear()
        metrics.ready_queue.clear()
        for status in self._backend.pools():
            name = status.spec.name
            metrics.pool_size.labels(name).set(status.spec.size)
            metrics.ready_queue.labels(name).set(self._supply.slots.warm.count(name))
        for status, count in self._directory.all_statuses().items():
            metrics.sandboxes.labels(status).set(count)
        return metrics.text()
