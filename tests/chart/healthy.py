"""What a healthy installation under load exports minute by minute, as series of promtool's rule tests.

Each fault of tests/chart/faults.py replaces some of it. Nothing is at its best here: a few creates, dials and image
preparations fail, budgets are full, and callers are refused, all of which no alert may take for a fault.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.chart.render import NAMESPACE, SANDBOXES

START, END = 6, 22  # minutes: when a fault begins, and when the series end

Values = list[float | None]  # one a minute; None where nothing is scraped
Series = dict[str, Values]

GATEWAYS = ("sandlot-gateway-a", "sandlot-gateway-b")
LEADER, STANDBY = CONTROLLERS = ("sandlot-controller-a", "sandlot-controller-b")
AGENTS = ("sandlot-node-agent-a", "sandlot-node-agent-b")


def target(pod: str) -> dict[str, str]:
    """The labels that a scrape adds."""
    namespace = SANDBOXES if pod in AGENTS else NAMESPACE
    return {"namespace": namespace, "pod": pod, "instance": f"{pod}:1", "job": pod.rpartition("-")[0]}


def on(pods: tuple[str, ...] | str, metric: str, values: Values, **labels: str) -> Series:
    """The series of this metric from each of the pods."""
    found: Series = {}
    for pod in (pods,) if isinstance(pods, str) else pods:
        texts = [f'{name}="{value}"' for name, value in sorted((target(pod) | labels).items())]
        found[f"{metric}{{{', '.join(texts)}}}"] = values
    return found


def gauge(before: float | None, after: float | None, *, minutes: int = END) -> Values:
    """Another value for so many minutes of the fault."""
    return [after if START <= minute < START + minutes else before for minute in range(END)]


def counter(before: float, after: float, *, minutes: int = END) -> Values:
    """Another increase per minute for so many minutes of the fault."""
    total, found = 0.0, Values()
    for minute in range(END):
        found.append(total)
        total += after if START <= minute < START + minutes else before
    return found


def new_counter(after: float, *, minutes: int = END) -> Values:
    """As `counter`, of a series that begins with its first event."""
    found = counter(0, after, minutes=minutes)
    return [value if minute > START else None for minute, value in enumerate(found)]


def _always(value: float) -> Values:
    return gauge(value, value)


def _each_minute(events: float) -> Values:
    return counter(events, events)


def _process(pods: tuple[str, ...]) -> Series:
    return (
        on(pods, "up", _always(1))
        | on(pods, "process_start_time_seconds", _always(1000))
        | on(pods, "process_open_fds", _always(100))
        | on(pods, "process_max_fds", _always(1000))
    )


def _gateways() -> Series:
    gateways: Callable[..., Series] = lambda *words, **labels: on(GATEWAYS, *words, **labels)  # noqa: E731
    return (
        _process(GATEWAYS)
        | gateways("sandlot_live_sandboxes", _always(50))
        | gateways("sandlot_audit_write_failures_total", _always(0))
        | gateways("sandlot_audit_records_total", _each_minute(60), outcome="written")
        | gateways("sandlot_audit_records_total", _always(0), outcome="lost")
        | gateways("sandlot_reload_failing", _always(0), file="api_keys")
        | gateways("sandlot_reload_failing", _always(0), file="master_key")
        | gateways("sandlot_reload_failing", _always(0), file="certificate")
        | gateways("sandlot_reload_failing", _always(0), file="quotas")
        | gateways("sandlot_creates_total", _each_minute(60), source="warm", outcome="running")
        | gateways("sandlot_creates_total", _each_minute(3), source="cold", outcome="failed")
        | gateways("sandlot_creates_total", _each_minute(10), source="none", outcome="quota")
        | gateways("sandlot_requests_total", _each_minute(600), route="exec", code="2xx", verdict="exited")
        | gateways("sandlot_requests_total", _each_minute(10), route="exec", code="5xx", verdict="oom")
        | gateways("sandlot_requests_total", _each_minute(5), route="files", code="cut", verdict="none")
        | gateways("sandlot_requests_total", _each_minute(300), route="expose", code="5xx", verdict="none")
        | gateways("sandlot_rejected_total", _always(0), route="exec", scope="gateway")
        | gateways("sandlot_rejected_total", _always(0), route="files", scope="sandbox")
        | gateways("sandlot_dials_total", _each_minute(60), result="ok")
        | gateways("sandlot_dials_total", _each_minute(4), result="failed")
        | gateways("sandlot_dials_total", _each_minute(90), result="refused")
        | gateways("sandlot_sandbox_ends_total", _each_minute(60), verdict="deleted")
        | gateways("sandlot_sandbox_ends_total", _each_minute(1), verdict="evicted")
        | gateways("sandlot_ready_queue_depth", _always(4), pool="default")
        | gateways("sandlot_pool_size", _always(4), pool="default")
        | gateways("sandlot_ready_queue_depth", _always(0), pool="unused")
        | gateways("sandlot_pool_size", _always(0), pool="unused")
        | gateways("sandlot_webhooks_total", _each_minute(60), event="heartbeat")
        | gateways("sandlot_webhooks_total", _each_minute(1), event="unsigned")
    )


def _controllers() -> Series:
    conflicts = {"method": "PATCH", "reason": "Conflict"}
    return (
        _process(CONTROLLERS)
        | on(LEADER, "sandlot_controller_leader", _always(1))
        | on(STANDBY, "sandlot_controller_leader", _always(0))
        | on(CONTROLLERS, "sandlot_controller_watch_failing", _always(0), resource="pods")
        | on(CONTROLLERS, "sandlot_controller_watch_failing", _always(0), resource="kopf")
        | on(CONTROLLERS, "sandlot_controller_reload_failing", _always(0), file="master_key")
        | on(LEADER, "sandlot_controller_pool_failures", _always(1), pool="default")
        | on(LEADER, "sandlot_controller_api_errors_total", _each_minute(60), **conflicts)
        | on(
            LEADER, "sandlot_controller_api_errors_total", _each_minute(1), method="POST", reason="Forbidden"
        )
    )


def _agents() -> Series:
    return (
        on(AGENTS, "up", _always(1))
        | on(AGENTS, "sandlot_node_budget_bytes", _always(1e11))
        | on(AGENTS, "sandlot_node_image_bytes", _always(1e11))
        | on(AGENTS, "sandlot_node_evictions_total", _each_minute(10))
        | on(AGENTS, "sandlot_node_preparations_total", _each_minute(60), result="ok")
        | on(AGENTS, "sandlot_node_preparations_total", _always(0), result="no_space")
        | on(AGENTS, "sandlot_node_preparations_total", _each_minute(2), result="unavailable")
        | on(AGENTS, "sandlot_node_preparations_total", _each_minute(30), result="not_found")
    )


HEALTHY: Series = _gateways() | _controllers() | _agents()
