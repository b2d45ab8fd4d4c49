"""A healthy installation as the API server shows it, to break one thing at a time in it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sandlot.cli.cluster import checks
from sandlot.cli.cluster.api import Listing, Reading, Unread
from sandlot.cli.cluster.doc import Doc
from sandlot.cli.cluster.fields import FIELDS
from sandlot.cli.cluster.finding import Finding
from sandlot.cli.cluster.release import Release
from sandlot.cli.cluster.skew import Skew
from sandlot.cli.cluster.world import CLUSTER, NODE_LEASES, Kind, Review, Tool, World

RELEASE = Release("sandlot", "sandlot", "sandlot-sandboxes")
NOW = 1_800_000_000.0
OLD, NEW = "2027-01-15T07:00:00Z", "2027-01-15T07:59:55Z"  # an hour and five seconds before NOW
Raw = dict[str, Any]


def labels(component: str) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "sandlot",
        "app.kubernetes.io/instance": "sandlot",
        "app.kubernetes.io/component": component,
    }


def named(name: str, namespace: str = "", **metadata: Any) -> Raw:
    inside = {"namespace": namespace} if namespace else {}
    return {"metadata": {"name": name, **inside, "creationTimestamp": OLD, "generation": 1, **metadata}}


def deployment(component: str, env: dict[str, str], secrets: dict[str, str]) -> Raw:
    name = f"sandlot-{component}"
    container = {
        "name": component,
        "image": f"registry.example/{component}:0.1.0",
        "env": [{"name": key, "value": value} for key, value in env.items()],
        "volumeMounts": [{"name": one, "mountPath": f"/etc/sandlot/{one}"} for one in secrets],
    }
    volumes = [{"name": one, "secret": {"secretName": secret}} for one, secret in secrets.items()]
    spec = {
        "serviceAccountName": name,
        "priorityClassName": "sandlot-system",
        "containers": [container],
        "volumes": volumes,
    }
    template = {"metadata": {"labels": labels(component)}, "spec": spec}
    marks = labels(component) | {"app.kubernetes.io/version": "0.1.0"}
    return named(name, "sandlot", labels=marks) | {
        "spec": {"replicas": 2, "template": template},
        "status": {"readyReplicas": 2, "updatedReplicas": 2},
    }


def pod(name: str, component: str, *, node: str = "worker", pool: str = "", ready: bool = True) -> Raw:
    namespace = "sandlot" if component in ("gateway", "controller") else "sandlot-sandboxes"
    marks = labels(component) | ({"sandlot.dev/pool": pool} if pool else {})
    conditions = [
        {"type": "PodScheduled", "status": "True"},
        {"type": "Ready", "status": str(ready), "lastTransitionTime": OLD},
    ]
    return named(name, namespace, labels=marks) | {
        "spec": {"nodeName": node},
        "status": {"phase": "Running" if ready else "Pending", "podIP": "10.0.0.1", "conditions": conditions},
    }


def definition(name: str) -> Raw:
    root: Raw = {}
    for path in FIELDS[name]:
        at = root
        for part in path.split("."):
            at = at.setdefault("properties", {}).setdefault(part, {})
    version = {"name": "v1alpha1", "served": True, "schema": {"openAPIV3Schema": root}}
    established = {"type": "Established", "status": "True"}
    return named(name) | {"spec": {"versions": [version]}, "status": {"conditions": [established]}}


def secret(name: str, key: str) -> Raw:
    return named(name, "sandlot", managedFields=[{"fieldsV1": {"f:data": {f"f:{key}": {}}}}])


def service(name: str, namespace: str, **spec: Any) -> Raw:
    return named(name, namespace) | {"spec": {"type": "ClusterIP", "clusterIP": "10.1.0.1", **spec}}


def endpoints(service: str, namespace: str, *pods: str) -> Raw:
    found = [{"targetRef": {"name": one}, "conditions": {"ready": True}} for one in pods]
    return named(f"{service}-x", namespace, labels={"kubernetes.io/service-name": service}) | {
        "endpoints": found
    }


def policy(name: str, namespace: str, selected: dict[str, str], *kinds: str, **rules: Any) -> Raw:
    selector = {"matchLabels": selected} if selected else {}
    return named(name, namespace) | {"spec": {"podSelector": selector, "policyTypes": list(kinds), **rules}}


def pool(name: str = "default") -> Raw:
    ready = {"type": "Ready", "status": "True", "reason": "Filled", "lastTransitionTime": OLD}
    counts = {"size": 2, "ready": 2, "starting": 0, "claimed": 0, "failures": 0, "observedGeneration": 1}
    template = {"image": "python:3.12", "cpu": 1, "memory": 1 << 30}
    return named(name, "sandlot-sandboxes") | {
        "spec": {"size": 2, "template": template},
        "status": {**counts, "conditions": [ready]},
    }


def lease(name: str, namespace: str, holder: str) -> Raw:
    written = [{"manager": "kubelet", "time": NEW}]
    spec = {"holderIdentity": holder, "renewTime": NEW, "leaseDurationSeconds": 15}
    return named(name, namespace, managedFields=written) | {"spec": spec}


def node(name: str) -> Raw:
    conditions = [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "False"}]
    offered = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    status = {"conditions": conditions, "allocatable": offered}
    return named(name, labels={"kubernetes.io/hostname": name}) | {"status": status}


def _port(number: int) -> list[Raw]:
    return [{"protocol": "TCP", "port": number}]


def healthy() -> dict[tuple[Kind, str], list[Raw]]:
    own, inside = RELEASE.namespace, RELEASE.sandboxes
    gateway = {
        "SANDLOT_NAMESPACE": inside,
        "SANDLOT_KEY_FILE": "/etc/sandlot/master/master",
        "SANDLOT_API_KEYS_FILE": "/etc/sandlot/api-key/api-key",
    }
    controller = {
        "SANDLOT_NAMESPACE": inside,
        "SANDLOT_KEY_FILE": "/etc/sandlot/master/master",
        "SANDLOT_LEASE_NAME": "sandlot-controller",
        "SANDLOT_SIDECAR_IMAGE": "registry.example/sidecar:0.1.0",
        "SANDLOT_SUBDOMAIN": "sandboxes",
        "SANDLOT_RUNTIME_CLASS": "gvisor",
        "SANDLOT_PRIORITY_CLASS": "sandlot-sandbox",
    }
    master = {"master": "sandlot-master"}
    privileged = {"pod-security.kubernetes.io/enforce": "privileged"}
    to_gateway = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": own}}}]
    boxes = labels("sandbox")
    del boxes["app.kubernetes.io/instance"]
    return {
        (Kind.DEPLOYMENTS, own): [
            deployment("gateway", gateway, master | {"api-key": "sandlot-api-key"}),
            deployment("controller", controller, master),
        ],
        (Kind.PODS, own): [pod("g-1", "gateway"), pod("c-1", "controller")],
        (Kind.PODS, inside): [pod("i-1", "sandbox", pool="default"), pod("i-2", "sandbox", pool="default")],
        (Kind.SECRETS, own): [secret("sandlot-master", "master"), secret("sandlot-api-key", "api-key")],
        (Kind.NAMESPACES, CLUSTER): [named(own), named(inside, labels=privileged)],
        (Kind.DEFINITIONS, CLUSTER): [definition(name) for name in FIELDS],
        (Kind.RUNTIME_CLASSES, CLUSTER): [named("gvisor")],
        (Kind.PRIORITY_CLASSES, CLUSTER): [named("sandlot-system"), named("sandlot-sandbox")],
        (Kind.NODES, CLUSTER): [node("worker")],
        (Kind.POOLS, inside): [pool()],
        (Kind.LEASES, own): [lease("sandlot-controller", own, "c-1")],
        (Kind.LEASES, NODE_LEASES): [lease("worker", NODE_LEASES, "worker")],
        (Kind.SERVICES, own): [service("sandlot-gateway", own), service("sandlot-gateway-webhooks", own)],
        (Kind.SERVICES, inside): [service("sandboxes", inside, clusterIP="None")],
        (Kind.SLICES, own): [
            endpoints("sandlot-gateway", own, "g-1"),
            endpoints("sandlot-gateway-webhooks", own, "g-1"),
        ],
        (Kind.SLICES, inside): [endpoints("sandboxes", inside, "i-1", "i-2")],
        (Kind.POLICIES, own): [
            policy("sandlot-gateway", own, labels("gateway"), "Ingress", ingress=[{"ports": _port(8641)}])
        ],
        (Kind.POLICIES, inside): [
            policy("deny-all", inside, {}, "Ingress", "Egress"),
            policy("open", inside, boxes, "Egress", egress=[{"ports": _port(8641), "to": to_gateway}]),
            policy("dns", inside, boxes, "Egress", egress=[{"ports": _port(53)}]),
        ],
    }


METRICS = """\
# TYPE sandlot_dials counter
sandlot_dials_total{result="ok"} 3.0
sandlot_dials_total{result="failed"} 1.0
sandlot_webhooks_total{event="ready"} 2.0
sandlot_webhooks_total{event="unsigned"} 0.0
sandlot_ready_queue_depth{pool="default"} 2.0
"""
LEADS = 'sandlot_controller_leader 1.0\nsandlot_controller_watch_failing{resource="pods"} 0.0\n'


class Cluster:
    """What a test breaks before it looks."""

    def __init__(self) -> None:
        self.objects = healthy()
        self.unread: dict[tuple[Kind, str], Unread] = {}
        reviews = [("you", "get", "pods/log"), ("gateway", "list", "pods"), ("controller", "create", "pods")]
        self.world = World(
            Tool("0.1.0", "v1.36.3", "/usr/bin/kubectl", "test", "v1.36.1"),
            RELEASE,
            NOW,
            Skew(-0.5, 0.5),
            {},
            tuple(Review(who, verb, what, RELEASE.sandboxes, True) for who, verb, what in reviews),
            {"g-1": METRICS},
            {"c-1": LEADS},
            {"i-1": '{"at": 1799990000.0, "event": "ready"}\n'},
            {"g-1": Skew(-1.7, 0.3), "c-1": Skew(-0.8, 1.2)},
            {"worker": {"cpu": 2.5, "memory": 3 << 30, "pods": 20}},
        )

    def objects_of(self, kind: Kind, namespace: str = CLUSTER) -> list[Raw]:
        return self.objects.setdefault((kind, namespace), [])

    def one(self, kind: Kind, namespace: str, name: str) -> Raw:
        return next(each for each in self.objects_of(kind, namespace) if each["metadata"]["name"] == name)

    def remove(self, kind: Kind, namespace: str, name: str) -> None:
        self.objects_of(kind, namespace).remove(self.one(kind, namespace, name))

    def but(self, **changes: Any) -> None:
        self.world = replace(self.world, **changes)

    def read(self) -> World:
        readings: dict[tuple[Kind, str], Reading] = {
            key: Listing([Doc(copy.deepcopy(raw)) for raw in raws]) for key, raws in self.objects.items()
        }
        return replace(self.world, readings=readings | self.unread)

    def findings(self) -> list[Finding]:
        return list(checks.findings(self.read()))


Break = Callable[[Cluster], object]
