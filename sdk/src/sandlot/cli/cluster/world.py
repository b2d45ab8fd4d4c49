"""All that a check looks at: what was read of the cluster at one moment, and what could not be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from .api import Listing, Reading, Unread
from .doc import Doc, environment
from .pod_requests import Amounts
from .release import Release
from .skew import Skew


class Kind(Enum):
    """The kinds that are read: their base path and plural."""

    DEPLOYMENTS = ("/apis/apps/v1", "deployments")
    DAEMON_SETS = ("/apis/apps/v1", "daemonsets")
    PODS = ("/api/v1", "pods")
    SECRETS = ("/api/v1", "secrets")
    SERVICES = ("/api/v1", "services")
    CLAIMS = ("/api/v1", "persistentvolumeclaims")
    QUOTAS = ("/api/v1", "resourcequotas")
    LIMITS = ("/api/v1", "limitranges")
    EVENTS = ("/api/v1", "events")
    NODES = ("/api/v1", "nodes")
    NAMESPACES = ("/api/v1", "namespaces")
    SLICES = ("/apis/discovery.k8s.io/v1", "endpointslices")
    POLICIES = ("/apis/networking.k8s.io/v1", "networkpolicies")
    LEASES = ("/apis/coordination.k8s.io/v1", "leases")
    RUNTIME_CLASSES = ("/apis/node.k8s.io/v1", "runtimeclasses")
    PRIORITY_CLASSES = ("/apis/scheduling.k8s.io/v1", "priorityclasses")
    DEFINITIONS = ("/apis/apiextensions.k8s.io/v1", "customresourcedefinitions")
    POOLS = ("/apis/sandlot.dev/v1alpha1", "sandboxpools")

    @property
    def base(self) -> str:
        return self.value[0]

    @property
    def plural(self) -> str:
        return self.value[1]


CLUSTER = ""  # in place of a namespace
NODE_LEASES = "kube-node-lease"


class NotRead(Exception):
    """A check needs what could not be read; the message names it and says why."""


@dataclass(frozen=True, slots=True)
class Tool:
    """How the cluster was reached."""

    version: str  # of this command line
    kubectl: str  # its version
    program: str
    context: str
    server: str  # the API server's version


@dataclass(frozen=True, slots=True)
class Review:
    """One answer of the API server's authorization; `who`: you, gateway or controller."""

    who: str
    verb: str
    resource: str  # with its subresource
    namespace: str  # empty: the whole cluster
    allowed: bool | Unread


@dataclass(frozen=True, slots=True)
class World:
    tool: Tool
    release: Release
    now: float  # by the API server's clock
    clock: Skew | None  # of this machine, against the API server's; None if that tells no time
    readings: Mapping[tuple[Kind, str], Reading]  # by kind and namespace
    reviews: tuple[Review, ...] = ()
    # Texts by pod: the metrics of gateways and controllers, and the last lines of some sidecars' logs.
    gateway_metrics: Mapping[str, str | Unread] = field(default_factory=dict[str, str | Unread])
    controller_metrics: Mapping[str, str | Unread] = field(default_factory=dict[str, str | Unread])
    sidecar_logs: Mapping[str, str | Unread] = field(default_factory=dict[str, str | Unread])
    # Of the running gateways and controllers, against the API server's, by pod; None if no answer tells it.
    part_clocks: Mapping[str, Skew | None] = field(default_factory=dict[str, Skew | None])
    requested: Mapping[str, Amounts] | Unread = field(
        default_factory=dict[str, Amounts]
    )  # by node, of all pods

    def list(self, kind: Kind, namespace: str = CLUSTER) -> list[Doc]:
        """Return what was read. Raises NotRead."""
        found = self.readings.get((kind, namespace), Listing())
        if isinstance(found, Unread):
            raise NotRead(f"{place(kind, namespace)} cannot be read: {found.reason}")
        return found.items

    def workload(self, component: str) -> Doc | None:
        """Return the Deployment of gateway or controller, if it exists. Raises NotRead."""
        found = self.list(Kind.DEPLOYMENTS, self.release.namespace)
        return next((one for one in found if one.component == component), None)

    def settings(self, component: str) -> dict[str, str]:
        """Return the variables of its Deployment. Raises NotRead."""
        workload = self.workload(component)
        return {} if workload is None else environment(workload)

    def pods(self, component: str) -> list[Doc]:
        """Return the pods of gateway, controller or sandboxes. Raises NotRead."""
        outside = component in ("gateway", "controller")
        namespace = self.release.namespace if outside else self.release.sandboxes
        return [one for one in self.list(Kind.PODS, namespace) if one.component == component]


def place(kind: Kind, namespace: str) -> str:
    return f"{kind.plural} of namespace {namespace}" if namespace else kind.plural
