"""The checks of what sandboxes need find its fault: one broken thing is one problem, with what to do."""

from __future__ import annotations

import pytest
from sandlot.cli.cluster.skew import Skew
from sandlot.cli.cluster.world import CLUSTER, NODE_LEASES, Kind

from tests.cli.cluster.breaks import (
    INSIDE,
    OWN,
    Problem,
    added,
    both,
    changed,
    check_problem,
    event,
    gateway_metrics,
    pool_says,
    removed,
    requested,
    settings,
    stuck,
    tainted,
    waiting,
    with_gpus,
    without_dns,
)
from tests.cli.cluster.worlds import METRICS, NEW, NOW, OLD, lease, named, node, service

UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available: 3 Insufficient cpu.",
}
PROBLEMS: dict[str, Problem] = {
    "no policies": (
        lambda cluster: cluster.objects_of(Kind.POLICIES, INSIDE).clear(),
        f"network policies of {INSIDE}", "none denies all traffic", "networkPolicy.enabled",
    ),
    "policies without webhooks": (
        removed(Kind.POLICIES, INSIDE, "open"),
        f"network policies of {INSIDE}", "none lets sidecars reach port 8641", "helm upgrade",
    ),
    "policies for another namespace": (
        lambda cluster: cluster.one(Kind.POLICIES, INSIDE, "open")["spec"]["egress"][0]["to"][0]["namespaceSelector"][
            "matchLabels"
        ].update({"kubernetes.io/metadata.name": "elsewhere"}),
        f"network policies of {INSIDE}", "none lets sidecars reach port 8641", "helm upgrade",
    ),
    "a sidecar without DNS and address": (
        without_dns("10.1.0.1", None),
        "DNS", "1 of 2 sidecars do not have the address of the Service sandlot/sandlot-gateway-webhooks (10.1.0.1)",
        "restart the controllers",
    ),
    "sidecars without DNS and with an address of before": (
        without_dns("10.1.0.9"), "DNS", "1 of 1 sidecars do not have the address", "networkPolicy.dns.enabled",
    ),
    "no policy of the gateways": (
        removed(Kind.POLICIES, OWN, "sandlot-gateway"),
        f"network policies of {OWN}", "none covers the gateways", "helm upgrade",
    ),
    "no service for webhooks": (
        removed(Kind.SERVICES, OWN, "sandlot-gateway-webhooks"),
        f"service {OWN}/sandlot-gateway-webhooks", "sidecars find no gateway", "helm upgrade",
    ),
    "no endpoint": (
        removed(Kind.SLICES, OWN, "sandlot-gateway-x"),
        f"service {OWN}/sandlot-gateway", "no ready endpoint, so clients", "selector",
    ),
    "no load balancer": (
        changed(Kind.SERVICES, OWN, "sandlot-gateway", spec={"type": "LoadBalancer"}),
        f"service {OWN}/sandlot-gateway", "load balancer no address", "describe service",
    ),
    "no headless service": (
        removed(Kind.SERVICES, INSIDE, "sandboxes"),
        f"service {INSIDE}/sandboxes", "no DNS names", "helm upgrade",
    ),
    "service with an address": (
        both(removed(Kind.SERVICES, INSIDE, "sandboxes"), added(Kind.SERVICES, INSIDE, service("sandboxes", INSIDE))),
        f"service {INSIDE}/sandboxes", "not headless", "delete it",
    ),
    "empty slices": (
        removed(Kind.SLICES, INSIDE, "sandboxes-x"),
        f"service {INSIDE}/sandboxes", "2 sandboxes' pods have an address", "kube-controller-manager",
    ),
    "failing pool": (
        pool_says("Failing", "image_pull: sandbox: not found", ready=1, failures=3),
        "pool default", "1 of 2 ready, 0 starting, 0 claimed, 3 starts failed: image_pull: sandbox", "correct the image",
    ),
    "waiting pool": (
        pool_says("Waiting", "0/3 nodes are available: 3 Insufficient cpu.", ready=0),
        "pool default", "Insufficient cpu", "correct what the message names",
    ),
    "idle pool": (
        pool_says("Filling", ready=1),
        "pool default", "1 of 2 ready, 0 starting, 0 claimed, and none is started", "leader",
    ),
    "pool unseen": (
        changed(Kind.POOLS, INSIDE, "default", metadata={"generation": 2}),
        "pool default", "has not seen its last change", "leader",
    ),
    "image of a pod": (
        stuck("sandbox", waiting("ErrImagePull", "not found: python:3.12")),
        f"pods of {INSIDE}", "i-9: sandbox: ErrImagePull: not found: python:3.12", "correct the image",
    ),
    "image of several pods": (
        both(stuck("sandbox", waiting("ErrImagePull")), stuck("sandbox", waiting("ErrImagePull"), "i-8")),
        f"pods of {INSIDE}", "2 pods, such as i-9: sandbox: ErrImagePull: python:3.12", "correct the image",
    ),
    "slow start with an event": (
        both(
            stuck("sandbox", waiting("ContainerCreating")),
            event("i-9", "FailedCreatePodSandBox", 'no runtime for "runsc" is configured'),
        ),
        f"pods of {INSIDE}", 'not ready 60 min after its creation: FailedCreatePodSandBox: no runtime for "runsc"', "troubleshooting.md",
    ),
    "no room": (
        changed(Kind.PODS, INSIDE, "i-1", status={"phase": "Pending", "conditions": [UNSCHEDULABLE]}),
        f"pods of {INSIDE}", "i-1: Unschedulable: 0/3 nodes are available: 3 Insufficient cpu.", "add nodes",
    ),
    "node not ready": (
        both(
            added(Kind.NODES, CLUSTER, node("second")),
            changed(Kind.NODES, CLUSTER, "second", status={"conditions": [{"type": "Ready", "status": "Unknown", "message": "stopped"}]}),
        ),
        "node second", "not ready: stopped", "kubectl describe node second",
    ),
    "pressure": (
        both(
            added(Kind.NODES, CLUSTER, node("second")),
            changed(
                Kind.NODES, CLUSTER, "second",
                status={"conditions": [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "True"}]},
            ),
        ),
        "node second", "DiskPressure", "describe node",
    ),
    "all cordoned": (
        changed(Kind.NODES, CLUSTER, "worker", spec={"unschedulable": True}),
        "nodes", "0 of 1 take new sandboxes", "uncordon",
    ),
    "all tainted": (
        tainted("worker", key="only", value="us", effect="NoExecute"),
        "nodes", "0 of 1 take new sandboxes; tainted: worker", "sandboxes.pods.tolerations",
    ),
    "the only node of the runtime class is cordoned": (
        both(
            changed(Kind.RUNTIME_CLASSES, CLUSTER, "gvisor", scheduling={"nodeSelector": {"gvisor": "yes"}}),
            added(Kind.NODES, CLUSTER, node("second")),
            changed(Kind.NODES, CLUSTER, "second", metadata={"labels": {"gvisor": "yes"}}, spec={"unschedulable": True}),
        ),
        "nodes", "0 of 1 take new sandboxes; cordoned: second", "uncordon",
    ),
    "the only node of a pool's runtime class is tainted": (
        both(
            changed(Kind.POOLS, INSIDE, "default", spec={"template": {"runtimeClass": "kata"}}),
            added(Kind.RUNTIME_CLASSES, CLUSTER, named("kata") | {"scheduling": {"nodeSelector": {"kata": "yes"}}}),
            added(Kind.NODES, CLUSTER, node("second")),
            changed(Kind.NODES, CLUSTER, "second", metadata={"labels": {"kata": "yes"}}),
            tainted("second", key="only", effect="NoSchedule"),
        ),
        "nodes of runtime class kata", "0 of 1 take new sandboxes; tainted: second", "sandboxes.pods.tolerations",
    ),
    "no node with the labels of both": (
        both(
            settings("controller", NODE_SELECTOR='{"pool": "sandboxes"}'),
            changed(Kind.RUNTIME_CLASSES, CLUSTER, "gvisor", scheduling={"nodeSelector": {"gvisor": "yes"}}),
            changed(Kind.NODES, CLUSTER, "worker", metadata={"labels": {"gvisor": "yes"}}),
            added(Kind.NODES, CLUSTER, node("second")),
            changed(Kind.NODES, CLUSTER, "second", metadata={"labels": {"pool": "sandboxes"}}),
        ),
        "nodes", "labels that sandboxes require (gvisor=yes, pool=sandboxes)", "nodeSelector",
    ),
    "no node with the labels": (
        settings("controller", NODE_SELECTOR='{"pool": "sandboxes"}'),
        "nodes", "labels that sandboxes require (pool=sandboxes)", "nodeSelector",
    ),
    "sidecar without a gateway": (
        lambda cluster: cluster.but(
            sidecar_logs={"i-1": f'{{"at": {NOW - 3}, "event": "webhook_failed", "error": "no address"}}\nnot JSON\n'}
        ),
        "webhooks of sidecars", "1 of 1 sidecars did not reach a gateway within the last minute: no address", "networkPolicy.dns",
    ),
    "sidecar that refuses a certificate": (
        lambda cluster: cluster.but(
            sidecar_logs={"i-1": f'{{"at": {NOW - 3}, "event": "tls_refused", "reason": "it has expired"}}\n'}
        ),
        "TLS of sidecars", "1 of 1 refused a connection within the last minute: it has expired", "sidecarTls",
    ),
    "gateway that knows no pod": (
        gateway_metrics('sandlot_ready_queue_depth{pool="default"} 0.0\n'),
        "gateway g-1", "knows no ready pod of pool default", "networkPolicy.dns",
    ),
    "unsigned webhooks": (
        gateway_metrics('sandlot_webhooks_total{event="unsigned"} 7.0\n'),
        "gateway g-1", "rejected 7 webhooks as unsigned", "master key",
    ),
    "unsigned webhooks at one gateway of two": (
        lambda cluster: cluster.but(
            gateway_metrics={"g-1": 'sandlot_webhooks_total{event="unsigned"} 7.0\n', "g-2": METRICS}
        ),
        "gateway g-1", "rejected 7 webhooks as unsigned", "master key",
    ),
    "gateway that reaches no sidecar": (
        gateway_metrics('sandlot_dials_total{result="failed"} 9.0\nsandlot_ready_queue_depth{pool="default"} 2.0\n'),
        "gateway g-1", "none of its 9 connections", "network policies",
    ),
    "gateway whose connections are refused": (
        gateway_metrics('sandlot_dials_total{result="refused"} 9.0\nsandlot_ready_queue_depth{pool="default"} 2.0\n'),
        "gateway g-1", "none of its 9 connections", "network policies",
    ),
    "clock of this machine": (
        lambda cluster: cluster.but(clock=Skew(-301, -300)),
        "clock of this machine", "5 min behind", "NTP",
    ),
    "clock of a gateway": (
        lambda cluster: cluster.but(part_clocks={"g-1": Skew(-302, -300), "c-1": Skew(-1, 1)}),
        "clock of g-1", "5 min behind", "NTP",
    ),
    "no room for a pool": (
        both(pool_says("Filling", since=NEW, ready=1), requested(cpu=7.9)),
        "nodes: room for pool default", "0 more pods fit, which request 0.11 cores and 0.28 GiB each, and the pool lacks some; "
        "pods request 7.9 of their 8.0 cores and 3.0 of 32.0 GiB, and are 20 of at most 110", "add nodes",
    ),
    "no GPU for a pool": (
        both(pool_says("Filling", since=NEW, ready=1), with_gpus("8", label="H100"), requested(gpus=8)),
        "nodes: room for pool default", "0 more pods fit, which request 0.11 cores, 0.28 GiB and 4 nvidia.com/gpu each, and the "
        "pool lacks some; pods request 2.5 of their 8.0 cores, 3.0 of 32.0 GiB and 8 of 8 nvidia.com/gpu", "add nodes",
    ),
    "no node with a pool's type of GPU": (
        both(pool_says("Filling", since=NEW, ready=1), with_gpus("8", label="A100")),
        "nodes: room for pool default", "no node that takes sandboxes has nvidia.com/gpu.product=H100, and the pool lacks some",
        "add nodes",
    ),
    "no disk for a pool": (
        both(
            pool_says("Filling", since=NEW, ready=1),
            settings("controller", GUARANTEED="true"),
            changed(Kind.NODES, CLUSTER, "worker", status={"allocatable": {"ephemeral-storage": "5Gi"}}),
        ),
        "nodes: room for pool default", "and 6.00 GiB of disk each, and the pool lacks some", "add nodes",
    ),
    "a pod without a node for which there is no room": (
        both(
            pool_says("Filling", since=NEW, ready=1, starting=1),
            changed(Kind.PODS, INSIDE, "i-2", spec={"nodeName": None}),
            requested(pods=110),
        ),
        "nodes: room for pool default", "0 more pods fit", "make pools smaller",
    ),
    "clock of a node": (
        lambda cluster: cluster.objects_of(Kind.LEASES, NODE_LEASES).append(
            lease("late", NODE_LEASES, "late") | {"spec": {"renewTime": OLD}}
        ),
        "clock of node late", "60 min behind", "NTP",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", PROBLEMS)
def test_one_broken_thing_is_one_problem(what: str) -> None:
    check_problem(PROBLEMS[what])
