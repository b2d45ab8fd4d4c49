"""The faults that the alerts are for, too short ones, and what looks like a fault and is none."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from tests.chart.healthy import (
    AGENTS,
    CONTROLLERS,
    END,
    GATEWAYS,
    HEALTHY,
    LEADER,
    STANDBY,
    START,
    Series,
    Values,
    counter,
    gauge,
    new_counter,
    on,
    target,
)
from tests.chart.render import NAMESPACE, SANDBOXES

Labels = dict[str, str]
ONE, OTHER = GATEWAYS
OWN, INSIDE = {"namespace": NAMESPACE}, {"namespace": SANDBOXES}


@dataclass(frozen=True)
class Firing:
    """An alert that fires so many minutes after the fault begins, once for each of these sets of labels."""

    after: int
    labels: tuple[Labels, ...]
    minutes: int = END  # for so long


@dataclass(frozen=True)
class Fault:
    """Replaces series of the healthy installation; exactly these alerts fire."""

    series: Series
    alerts: dict[str, Firing]


def once(events: float) -> Values:
    """A counter that only counts in the fault's first minute."""
    return counter(0, events, minutes=1)


def gone(pods: tuple[str, ...], *, minutes: int = END) -> Series:
    """What Prometheus has of pods that do not answer: their health only."""
    found: Series = {}
    for pod in pods:
        for name, values in HEALTHY.items():
            if f'pod="{pod}"' in name:
                there = gauge(1, None, minutes=minutes)
                found[name] = [value if seen else None for value, seen in zip(values, there, strict=True)]
    return found | on(pods, "up", gauge(1, 0, minutes=minutes))


def restarts(*minutes: int) -> Series:
    """Starts of one gateway's process, so many minutes after the fault begins."""
    steps = [100.0 if minute - START in minutes else 0.0 for minute in range(END)]
    return on(ONE, "process_start_time_seconds", list(accumulate(steps, initial=1000))[1:])


def refused(*, each_minute: float) -> Series:
    """Commands that the gateways answer 503 for a full queue."""
    values = counter(0, each_minute)
    return on(GATEWAYS, "sandlot_rejected_total", values, route="exec", scope="gateway") | on(
        GATEWAYS, "sandlot_requests_total", values, route="exec", code="5xx", verdict="none"
    )


def creates(values: Values, source: str, outcome: str) -> Series:
    return on(GATEWAYS, "sandlot_creates_total", values, source=source, outcome=outcome)


def failed_requests(values: Values, code: str) -> Series:
    return on(GATEWAYS, "sandlot_requests_total", values, route="files", code=code, verdict="none")


def dials(result: str, values: Values) -> Series:
    return on(GATEWAYS, "sandlot_dials_total", values, result=result)


def ends(verdict: str, values: Values) -> Series:
    return on(GATEWAYS, "sandlot_sandbox_ends_total", values, verdict=verdict)


def unsigned(values: Values) -> Series:
    return on(GATEWAYS, "sandlot_webhooks_total", values, event="unsigned")


def forbidden(values: Values) -> Series:
    return on(LEADER, "sandlot_controller_api_errors_total", values, method="POST", reason="Forbidden")


def preparations(pods: tuple[str, ...], result: str, values: Values) -> Series:
    return on(pods, "sandlot_node_preparations_total", values, result=result)


def unread(values: Values) -> Series:
    return on(LEADER, "sandlot_controller_watch_failing", values, resource="pods")


def not_reloaded(pod: str, metric: str, file: str, values: Values) -> Series:
    return on(pod, f"sandlot_{metric}", values, file=file)


def alert(name: str, after: int, *labels: Labels, minutes: int = END) -> dict[str, Firing]:
    return {name: Firing(after, labels, minutes)}


def down(pods: tuple[str, ...], after: int = 5, name: str = "SandlotDoesNotAnswer") -> dict[str, Firing]:
    return alert(name, after, *map(target, pods))


def of(pod: str, **more: str) -> Labels:
    """The labels of an alert about one pod."""
    return {"namespace": target(pod)["namespace"], "pod": pod, **more}


FAULTS: dict[str, Fault] = {
    "no gateway": Fault(gone(GATEWAYS), alert("SandlotNoGateway", 2, OWN) | down(GATEWAYS)),
    "no controller": Fault(gone(CONTROLLERS), alert("SandlotNoController", 2, OWN) | down(CONTROLLERS)),
    "no leader": Fault(
        on(LEADER, "sandlot_controller_leader", gauge(1, 0)), alert("SandlotNoController", 2, OWN)
    ),
    "a list that fails": Fault(
        unread(gauge(0, 1)), alert("SandlotControllerCannotRead", 5, OWN | {"resource": "pods"})
    ),
    "one gateway hangs": Fault(gone((ONE,)), down((ONE,))),
    "restarts": Fault(restarts(0, 5, 10), alert("SandlotRestarts", 10, target(ONE))),
    "descriptors": Fault(
        on(ONE, "process_open_fds", gauge(100, 900)), alert("SandlotDescriptorsRunOut", 5, target(ONE))
    ),
    "audit records wait": Fault(
        on(ONE, "sandlot_audit_write_failures_total", counter(0, 1)),
        alert("SandlotAuditLogFails", 6, of(ONE)),
    ),
    "audit records are lost": Fault(
        on(ONE, "sandlot_audit_records_total", counter(0, 9), outcome="lost"),
        alert("SandlotAuditLogFails", 6, of(ONE)),
    ),
    "a certificate that is none": Fault(
        not_reloaded(ONE, "reload_failing", "certificate", gauge(0, 1)),
        alert("SandlotReloadFails", 5, of(ONE, file="certificate")),
    ),
    "a master key that is none": Fault(
        not_reloaded(STANDBY, "controller_reload_failing", "master_key", gauge(0, 1)),
        alert("SandlotReloadFails", 5, of(STANDBY, file="master_key")),
    ),
    "creates": Fault(creates(counter(3, 200), "cold", "failed"), alert("SandlotCreatesFail", 9, OWN)),
    "no start possible": Fault(
        creates(new_counter(200), "none", "cannot_start"), alert("SandlotCreatesFail", 9, OWN)
    ),
    "requests": Fault(failed_requests(counter(0, 200), "5xx"), alert("SandlotRequestsFail", 7, OWN)),
    "cut requests": Fault(failed_requests(counter(5, 200), "cut"), alert("SandlotRequestsFail", 7, OWN)),
    "dials": Fault(dials("failed", counter(4, 30)), alert("SandlotCannotReachSandboxes", 6, OWN)),
    "lost nodes": Fault(ends("node_lost", new_counter(10)), alert("SandlotLosesSandboxes", 7, OWN)),
    "failing pool": Fault(
        on(LEADER, "sandlot_controller_pool_failures", gauge(1, 9), pool="default"),
        alert("SandlotPoolDoesNotStart", 5, OWN | {"pool": "default"}),
    ),
    "empty pool": Fault(
        on(GATEWAYS, "sandlot_ready_queue_depth", gauge(4, 0), pool="default"),
        alert("SandlotPoolEmpty", 5, OWN | {"pool": "default"}),
    ),
    "full queues": Fault(refused(each_minute=200), alert("SandlotTurnsAway", 6, OWN)),
    "full queue of creates": Fault(
        creates(new_counter(20), "none", "queue_full"), alert("SandlotTurnsAway", 7, OWN)
    ),
    "writes": Fault(forbidden(counter(1, 60)), alert("SandlotWritesFail", 11, OWN | {"reason": "Forbidden"})),
    "webhooks": Fault(unsigned(counter(1, 60)), alert("SandlotWebhooksUnsigned", 11, OWN)),
    "no node agent": Fault(
        gone(AGENTS),
        alert("SandlotNoNodeAgent", 5, INSIDE) | down(AGENTS, 10, "SandlotNodeAgentDoesNotAnswer"),
    ),
    "one node agent": Fault(gone(AGENTS[:1]), down(AGENTS[:1], 10, "SandlotNodeAgentDoesNotAnswer")),
    "full disk": Fault(
        preparations(AGENTS[:1], "no_space", counter(0, 1)), alert("SandlotNodeOutOfSpace", 6, of(AGENTS[0]))
    ),
    "registry": Fault(
        preparations(AGENTS, "unavailable", counter(2, 40)), alert("SandlotImagesFail", 12, INSIDE)
    ),
}

# The same faults, which end by themselves before an operator needs to know.
SHORT: dict[str, Series] = {
    "SandlotNoGateway": gone(GATEWAYS, minutes=2),
    "SandlotNoController": on(LEADER, "sandlot_controller_leader", gauge(1, 0, minutes=2)),
    "SandlotControllerCannotRead": unread(gauge(0, 1, minutes=3)),
    "SandlotDoesNotAnswer": gone((ONE,), minutes=5),
    "SandlotRestarts": restarts(0, 5),
    "SandlotDescriptorsRunOut": on(ONE, "process_open_fds", gauge(100, 900, minutes=5)),
    "SandlotReloadFails": not_reloaded(ONE, "reload_failing", "api_keys", gauge(0, 1, minutes=5)),
    "SandlotCreatesFail": creates(counter(3, 200, minutes=3), "cold", "failed"),
    "SandlotRequestsFail": failed_requests(counter(0, 200, minutes=3), "5xx"),
    "SandlotCannotReachSandboxes": dials("failed", counter(4, 30, minutes=1)),
    "SandlotLosesSandboxes": ends("node_lost", counter(0, 20, minutes=1)),
    "SandlotPoolDoesNotStart": on(
        LEADER, "sandlot_controller_pool_failures", gauge(1, 9, minutes=5), pool="default"
    ),
    "SandlotPoolEmpty": on(GATEWAYS, "sandlot_ready_queue_depth", gauge(4, 0, minutes=5), pool="default"),
    "SandlotTurnsAway": on(GATEWAYS, "sandlot_rejected_total", once(500), route="exec", scope="gateway"),
    "SandlotWritesFail": forbidden(counter(1, 60, minutes=5)),
    "SandlotWebhooksUnsigned": unsigned(counter(1, 60, minutes=5)),
    "SandlotNoNodeAgent": gone(AGENTS, minutes=5),
    "SandlotNodeAgentDoesNotAnswer": gone(AGENTS[:1], minutes=10),
    "SandlotImagesFail": preparations(AGENTS, "unavailable", counter(2, 40, minutes=3)),
}

# Each of these is a loss by itself, so one is enough.
ONE_IS_ENOUGH: dict[str, Fault] = {
    "one failed write of audit records": Fault(
        on(ONE, "sandlot_audit_write_failures_total", once(1)),
        alert("SandlotAuditLogFails", 6, of(ONE), minutes=5),
    ),
    "one image without room": Fault(
        preparations(AGENTS[:1], "no_space", once(1)),
        alert("SandlotNodeOutOfSpace", 6, of(AGENTS[0]), minutes=5),
    ),
}

HARMLESS: dict[str, Series] = {
    "nothing": {},
    "another controller leads": on(LEADER, "sandlot_controller_leader", gauge(1, 0))
    | on(STANDBY, "sandlot_controller_leader", gauge(0, 1)),
    "a former leader knows pools": on(
        STANDBY, "sandlot_controller_pool_failures", gauge(1, 9), pool="default"
    ),
    "callers at their quotas": creates(counter(10, 1000), "none", "quota"),
    "requests that are wrong": creates(new_counter(1000), "none", "bad_request"),
    "exposed programs that fail": on(
        GATEWAYS, "sandlot_requests_total", counter(300, 3000), route="expose", code="5xx", verdict="none"
    ),
    "callers that leave": failed_requests(counter(0, 900), "gone"),
    "many cold starts": dials("refused", counter(90, 900)),
    "an idle installation whose sandboxes end": dials("ok", counter(60, 0)) | dials("failed", counter(4, 1)),
    "writes of what is gone": on(
        LEADER, "sandlot_controller_api_errors_total", counter(0, 600), method="DELETE", reason="NotFound"
    ),
    "images that do not exist": preparations(AGENTS, "not_found", counter(30, 600)),
    "a pool without a size": on(GATEWAYS, "sandlot_pool_size", gauge(4, 0), pool="default")
    | on(GATEWAYS, "sandlot_ready_queue_depth", gauge(4, 0), pool="default"),
}
