"""Renders counters as Prometheus text, computed on request."""

from __future__ import annotations

from sandlot_contract.phases import Phase

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .http import Http
    from .instance import Instance

DISK_LIMITS = ("kernel", "measured", "none")


def render(instance: Instance, http: Http) -> str:
    """Return all metrics of this sidecar; label sets are fixed."""
    table, webhooks = instance.ops.table, instance.webhooks
    lines: list[str] = []

    def add(name: str, kind: str, values: list[tuple[str, float]]) -> None:
        lines.append(f"# TYPE sandlot_sidecar_{name} {kind}")
        lines.extend(f"sandlot_sidecar_{name}{labels} {value:g}" for labels, value in values)

    add("phase", "gauge", [(f'{{phase="{phase}"}}', float(phase == instance.phase)) for phase in Phase])
    held_by = instance.sandbox.setup.get("disk_limit", "none")
    add("disk_limit", "gauge", [(f'{{by="{by}"}}', float(by == held_by)) for by in DISK_LIMITS])
    add("ops_running", "gauge", [("", table.running)])
    add("ops_queued", "gauge", [("", len(table.queue))])
    add("results_bytes", "gauge", [("", table.held)])
    ends = [
        (f'{{verdict="{verdict}"}}', float(count))
        for verdict, count in sorted(instance.ops.results.counts.items())
    ]
    add("ops_total", "counter", ends)
    impossible = [
        ('{of="instance"}', float(instance.impossible)),
        ('{of="op"}', float(instance.ops.impossible)),
    ]
    add("impossible_events_total", "counter", impossible)
    add("runners_made_total", "counter", [("", instance.ops.runners_made())])
    add("datagrams_dropped_total", "counter", [("", instance.use.datagrams_dropped)])
    add("http_requests_total", "counter", [("", http.requests)])
    add("webhooks_sent_total", "counter", [("", webhooks.sent)])
    add("webhooks_failed_total", "counter", [("", webhooks.failed)])
    return "\n".join(lines) + "\n"
