"""Prometheus metrics of the controller."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from sandlot_contract.verdicts import SANDBOX_VERDICTS
from sandlot_kube.errors import KubeError

# Kubernetes' own reasons, and ours.
_REASONS = frozenset(
    {
        "AlreadyExists",
        "BadRequest",
        "Conflict",
        "Expired",
        "Forbidden",
        "Gone",
        "InternalError",
        "Invalid",
        "MethodNotAllowed",
        "NotAcceptable",
        "NotFound",
        "RequestEntityTooLarge",
        "ServerTimeout",
        "ServiceUnavailable",
        "StorageReadError",
        "Timeout",
        "TooManyRequests",
        "Unauthorized",
        "Unreachable",
        "UnsupportedMediaType",
    }
)
# Without one of these an admission webhook tells a text for each object, and a proxy the phrase of its status line.
# Not 404 and 409, which here have a text of somebody's own: the alert takes their reasons for what the controller handles.
_REASON_OF_STATUS = {
    403: "Forbidden",
    422: "Invalid",
    500: "InternalError",
    502: "ServiceUnavailable",
    503: "ServiceUnavailable",
    504: "Timeout",
}
_STARTS = (0.5, 1, 2, 3, 5, 8, 13, 20, 30, 60, 120, 300)


class Metrics:
    """Metrics of one controller, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.leader = Gauge(
            "sandlot_controller_leader", "1 while this controller leads.", registry=self.registry
        )
        self.watch_failing = Gauge(
            "sandlot_controller_watch_failing",
            "1 while the leader cannot list or watch a resource, or a standby could not, or not hold the Lease.",
            ["resource"],
            registry=self.registry,
        )
        self._reload_failing = Gauge(
            "sandlot_controller_reload_failing",
            "1 while a changed file cannot be used, and the earlier state stays.",
            ["file"],
            registry=self.registry,
        )
        self.reload_failing(False)
        self.pods_created = Counter(
            "sandlot_controller_pods_created", "Pods created.", ["kind"], registry=self.registry
        )
        self._api_errors = Counter(
            "sandlot_controller_api_errors",
            "Writes that failed at the API server.",
            ["method", "reason"],
            registry=self.registry,
        )
        self._ended = Counter(
            "sandlot_controller_sandboxes_ended", "Sandboxes ended.", ["verdict"], registry=self.registry
        )
        self.pool = Gauge(
            "sandlot_controller_pool_pods", "Pods of a pool.", ["pool", "state"], registry=self.registry
        )
        self.pool_failures = Gauge(
            "sandlot_controller_pool_failures",
            "Failed starts of a pool since the last good one.",
            ["pool"],
            registry=self.registry,
        )
        self.starts = Histogram(
            "sandlot_controller_start_seconds",
            "Seconds from a pod's creation until it is ready.",
            ["kind"],
            buckets=_STARTS,
            registry=self.registry,
        )
        self.waiting = Gauge(
            "sandlot_controller_cold_waiting",
            "Sandboxes queued for a cold start.",
            registry=self.registry,
        )
        self.rejected = Counter(
            "sandlot_controller_nodes_rejected",
            "Pods that did not fit on the node chosen for them, because others use more of it than known.",
            registry=self.registry,
        )
        self.plan_seconds = Histogram(
            "sandlot_controller_plan_seconds", "Seconds to plan all pools once.", registry=self.registry
        )

    def write_failed(self, method: str, error: KubeError) -> None:
        """Count a failed write by Kubernetes' reason, or that of the status: `other` if neither is known."""
        # Without a Status in the body it is the phrase of the status line, such as `Too Many Requests`.
        reason = error.reason.replace(" ", "") if error.status else "Unreachable"
        known = reason if reason in _REASONS else _REASON_OF_STATUS.get(error.status, "other")
        self._api_errors.labels(method, known).inc()

    def sandbox_ended(self, verdict: str | None) -> None:
        """Count an ended sandbox: `none` without a verdict, `other` for one that is not in the contract."""
        self._ended.labels((verdict if verdict in SANDBOX_VERDICTS else "other") if verdict else "none").inc()

    def reload_failing(self, failing: bool) -> None:
        """Note whether the last change of the master key could not be used."""
        self._reload_failing.labels("master_key").set(failing)

    def show_watch(self, resource: str, *, failing: Callable[[], bool]) -> None:
        self.watch_failing.labels(resource).set_function(lambda: float(failing()))

    def end_term(self) -> None:
        """Show nothing of what only a leader knows: the next one exports it."""
        self.leader.set(0)
        self.pool.clear()
        self.pool_failures.clear()
        self.waiting.set(0)

    def text(self) -> bytes:
        return generate_latest(self.registry)
