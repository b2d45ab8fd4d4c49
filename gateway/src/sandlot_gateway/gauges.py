"""Metrics that are read from the gateway's parts when somebody scrapes them."""

from __future__ import annotations

from sandlot_gateway.core.backend import Backend
from sandlot_gateway.directory import Directory
from sandlot_gateway.engine.supply import Supply
from sandlot_gateway.metrics import Metrics


class Gauges:
    def __init__(self, metrics: Metrics, *, supply: Supply, directory: Directory, backend: Backend) -> None:
        self._metrics = metrics
        self._supply = supply
        self._directory = directory
        self._backend = backend
        live = metrics.live
        live("sandlot_creates_waiting", "Creates that wait.", read=lambda: supply.waiting)
        live("sandlot_starts_in_flight", "Cold starts in flight.", read=lambda: supply.starting)
        live("sandlot_ready_instances", "Warm instances nobody owns.", read=lambda: len(supply.slots.warm))
        live("sandlot_live_sandboxes", "Live sandboxes.", read=lambda: directory.total_live)

    def text(self) -> bytes:
        """All of the gateway's metrics, as Prometheus reads them."""
        metrics = self._metrics
        # A pool that was taken away would be wanted, by its last numbers, for as long as this gateway lives.
        metrics.pool_size.clear()
        metrics.ready_queue.clear()
        for status in self._backend.pools():
            name = status.spec.name
            metrics.pool_size.labels(name).set(status.spec.size)
            metrics.ready_queue.labels(name).set(self._supply.slots.warm.count(name))
        for status, count in self._directory.all_statuses().items():
            metrics.sandboxes.labels(status).set(count)
        return metrics.text()
