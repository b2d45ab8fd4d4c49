"""Each check of `sandlot doctor --cluster` finds its fault: one broken thing is one problem, with what to do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sandlot.cli.cluster.world import CLUSTER, Kind

from tests.cli.cluster.breaks import (
    INSIDE,
    OWN,
    Problem,
    added,
    both,
    changed,
    check_problem,
    event,
    field_removed,
    gateway_metrics,
    image,
    limit,
    pool_says,
    quota,
    removed,
    review,
    settings,
    stuck,
    template_of,
    waiting,
)
from tests.cli.cluster.worlds import LEADS, METRICS, NEW, OLD, named

LACKING = pool_says("Filling", since=NEW, ready=1)
PULL = "Back-off pulling image"
PROBLEMS: dict[str, Problem] = {
    "old Kubernetes": (
        lambda cluster: cluster.but(tool=replace(cluster.world.tool, server="v1.29.4")),
        "kubectl", "older than 1.30", "upgrade the cluster",
    ),
    "right of the controller": (
        review("controller", "deletecollection", "pods", False),
        "rights of the controller", "may not deletecollection pods in sandlot-sandboxes", "helm upgrade",
    ),
    "no definition": (
        removed(Kind.DEFINITIONS, CLUSTER, "imagewarmups.sandlot.dev"),
        "definition imagewarmups.sandlot.dev", "does not exist", "kubectl apply --server-side",
    ),
    "older definition": (
        field_removed("sandboxpools.sandlot.dev", "spec", "reuse", "maxAge"),
        "definition sandboxpools.sandlot.dev", "drops spec.reuse.maxAge", "kubectl apply --server-side",
    ),
    "definition not served": (
        changed(Kind.DEFINITIONS, CLUSTER, "sandboxes.sandlot.dev", spec={"versions": [{"name": "v1alpha1", "served": False}]}),
        "definition sandboxes.sandlot.dev", "does not serve v1alpha1", "kubectl apply",
    ),
    "no gateway": (
        removed(Kind.DEPLOYMENTS, OWN, "sandlot-gateway"),
        "deployment of the gateway", "none with the labels of release sandlot", "helm upgrade",
    ),
    "gateway scaled down": (
        changed(Kind.DEPLOYMENTS, OWN, "sandlot-gateway", spec={"replicas": 0}, status={"readyReplicas": 0}),
        "deployment sandlot-gateway", "scaled to 0", "gateway.replicas",
    ),
    "image of the gateway": (
        both(
            changed(Kind.DEPLOYMENTS, OWN, "sandlot-gateway", status={"readyReplicas": 0}),
            stuck("gateway", waiting("ImagePullBackOff", PULL, container="gateway"), "g-2"),
        ),
        "deployment sandlot-gateway", "pod g-2: gateway: ImagePullBackOff: python:3.12: Back-off", "image.registry",
    ),
    "crash of the controller": (
        both(
            changed(Kind.DEPLOYMENTS, OWN, "sandlot-controller", status={"readyReplicas": 1}),
            stuck(
                "controller",
                waiting("CrashLoopBackOff", lastState={"terminated": {"exitCode": 2, "reason": "Error"}}),
                "c-2",
            ),
        ),
        "deployment sandlot-controller", "ended with 2 (Error), 4 restarts", "logs c-2 --previous",
    ),
    "volume of the gateway": (
        both(
            changed(Kind.DEPLOYMENTS, OWN, "sandlot-gateway", status={"readyReplicas": 1}),
            stuck("gateway", waiting("ContainerCreating", container="gateway"), "g-2"),
            event("g-2", "Pulled", "earlier", namespace=OWN, at=OLD),
            event("g-2", "FailedMount", "no volume", namespace=OWN),
            event("g-2", "Pulling", "earlier", namespace=OWN, at=OLD),
        ),
        "deployment sandlot-gateway", "pod g-2: not ready 60 min after its creation: FailedMount: no volume", "describe pod g-2",
    ),
    "refused pods of the gateway": (
        changed(
            Kind.DEPLOYMENTS, OWN, "sandlot-gateway",
            status={"readyReplicas": 0, "conditions": [{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}]},
        ),
        "deployment sandlot-gateway", "0 of 2 ready; exceeded quota", "correct what the message names",
    ),
    "several tags": (
        settings("controller", SIDECAR_IMAGE="registry.example:5000/sidecar:0.0.9"),
        "versions", "sidecar 0.0.9", "image.tag",
    ),
    "several versions by digest": (
        both(
            settings("controller", SIDECAR_IMAGE="registry.example/sidecar@sha256:aa"),
            image("gateway", "registry.example/gateway@sha256:bb"),
            image("controller", "registry.example/controller@sha256:cc"),
            changed(Kind.DEPLOYMENTS, OWN, "sandlot-controller", metadata={"labels": {"app.kubernetes.io/version": "0.0.9"}}),
        ),
        "versions", "gateway 0.1.0, controller 0.0.9, sidecar 0.0.9, named by digest: gateway, controller, sidecar", "image.digests",
    ),
    "image without a tag": (
        image("gateway", "registry.example:5000/gateway"),
        "versions", "gateway unknown, controller 0.1.0", "image.tag",
    ),
    "node agents": (
        added(
            Kind.DAEMON_SETS, INSIDE,
            named("agents", INSIDE) | {"status": {"desiredNumberScheduled": 3, "numberReady": 1}},
        ),
        "daemon set agents", "1 of 3 ready", "events",
    ),
    "no node agents": (
        settings("controller", NODE_AGENT_TOKEN_FILE="/etc/sandlot/node-agent/token"),
        "node agents", "no DaemonSet", "nodeAgent.enabled",
    ),
    "nobody leads": (
        changed(Kind.LEASES, OWN, "sandlot-controller", spec={"holderIdentity": ""}),
        "leader", "nobody holds it", "/readyz",
    ),
    "silent leader": (
        changed(Kind.LEASES, OWN, "sandlot-controller", spec={"renewTime": OLD}),
        "leader", "c-1 has not renewed Lease sandlot-controller for 60 min", "logs",
    ),
    "failing watch": (
        lambda cluster: cluster.but(controller_metrics={"c-1": 'sandlot_controller_watch_failing{resource="nodes"} 1.0\n'}),
        "leader", "cannot list or watch nodes", "/readyz",
    ),
    "no secret": (
        removed(Kind.SECRETS, OWN, "sandlot-master"),
        "secret sandlot/sandlot-master", "does not exist", "helm upgrade",
    ),
    "secret without its key": (
        changed(Kind.SECRETS, OWN, "sandlot-api-key", metadata={"managedFields": [{"fieldsV1": {"f:data": {"f:key": {}}}}]}),
        "secret sandlot/sandlot-api-key", "lacks the key api-key", "docs/keys.md",
    ),
    "a certificate that cannot be used": (
        gateway_metrics(f'{METRICS}sandlot_reload_failing{{file="certificate"}} 1.0\n'),
        "changed files", "stay valid: gateway g-1: certificate", "correct the Secret",
    ),
    "a master key that cannot be used": (
        lambda cluster: cluster.but(
            controller_metrics={"c-1": f'{LEADS}sandlot_controller_reload_failing{{file="master_key"}} 1.0\n'}
        ),
        "changed files", "stay valid: controller c-1: master_key", "kubectl -n sandlot logs POD",
    ),
    "no pull secret": (
        template_of("gateway", imagePullSecrets=[{"name": "registry"}]),
        "secret sandlot/registry", "does not exist", "yourself",
    ),
    "no pull secret of sandboxes": (
        settings("controller", IMAGE_PULL_SECRETS='["images"]'),
        "secret sandlot-sandboxes/images", "does not exist", "yourself",
    ),
    "no volume": (
        template_of("gateway", volumes=[{"persistentVolumeClaim": {"claimName": "kept"}}]),
        "volume claim kept", "does not exist", "checkpoints.claim",
    ),
    "no runtime class": (
        removed(Kind.RUNTIME_CLASSES, CLUSTER, "gvisor"),
        "runtime class gvisor", "does not exist, named by the chart's default", "gvisor.createRuntimeClass",
    ),
    "no runtime class of a pool": (
        changed(Kind.POOLS, INSIDE, "default", spec={"template": {"runtimeClass": "kata"}}),
        "runtime class kata", "named by pool default", "pool's template",
    ),
    "no node of the runtime class": (
        changed(Kind.RUNTIME_CLASSES, CLUSTER, "gvisor", scheduling={"nodeSelector": {"gvisor": "yes"}}),
        "runtime class gvisor", "no node has its labels (gvisor=yes)", "label the nodes",
    ),
    "no priority class": (
        removed(Kind.PRIORITY_CLASSES, CLUSTER, "sandlot-sandbox"),
        "priority class sandlot-sandbox", "refuses pods", "priorityClasses.create",
    ),
    "no namespace": (
        removed(Kind.NAMESPACES, CLUSTER, INSIDE),
        f"namespace {INSIDE}", "does not exist", "createNamespace",
    ),
    "restricted namespace": (
        changed(Kind.NAMESPACES, CLUSTER, INSIDE, metadata={"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}),
        f"namespace {INSIDE}", "level is baseline, which refuses", "kubectl label namespace",
    ),
    "full quota of pods": (
        both(LACKING, quota({"pods": "10"}, {"pods": "10"})),
        f"quota {INSIDE}/q", "pods: 10 of 10 used", "raise the quota",
    ),
    "full quota of pods without a pool": (
        both(
            lambda cluster: cluster.objects_of(Kind.POOLS, INSIDE).clear(),
            quota({"pods": "10"}, {"pods": "10"}),
        ),
        f"quota {INSIDE}/q", "pods: 10 of 10 used", "raise the quota",
    ),
    "quota too small for another pod": (
        # A pod requests a quarter of its memory, and 32 MiB for its sidecar.
        both(LACKING, quota({"requests.memory": "1Gi"}, {"requests.memory": "800Mi"})),
        f"quota {INSIDE}/q", "requests.memory: 800Mi of 1Gi used", "raise the quota",
    ),
    "maximum of a limit range": (
        limit("Container", max={"memory": "1Gi"}),  # gVisor's headroom is above it
        f"limit range {INSIDE}/l", "pool default: sandbox has a memory limit of 1280Mi, above the maximum 1024Mi", "LimitRange",
    ),
    "minimum of a limit range": (
        limit("Container", min={"cpu": "50m"}),
        f"limit range {INSIDE}/l", "sidecar requests 0.01 cpu, below the minimum 0.05", "LimitRange",
    ),
    "ratio of a limit range": (
        limit("Container", maxLimitRequestRatio={"cpu": "4"}),
        f"limit range {INSIDE}/l", "sandbox has a cpu limit of more than 4 times its request", "LimitRange",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", PROBLEMS)
def test_one_broken_thing_is_one_problem(what: str) -> None:
    check_problem(PROBLEMS[what])
