"""What `sandlot doctor --cluster` says of a healthy installation, of what passes, and of what it cannot read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sandlot.cli.cluster.api import Unread
from sandlot.cli.cluster.finding import OK, PROBLEM, UNCHECKED
from sandlot.cli.cluster.skew import Skew
from sandlot.cli.cluster.world import CLUSTER, Kind, Review

from tests.cli.cluster.breaks import (
    INSIDE,
    OWN,
    added,
    both,
    changed,
    gateway_metrics,
    image,
    limit,
    merged,
    pool_says,
    quota,
    requested,
    review,
    settings,
    stuck,
    tainted,
    waiting,
    with_gpus,
    without_dns,
)
from tests.cli.cluster.worlds import METRICS, NEW, NOW, Break, Cluster, node


def test_a_healthy_installation_is_ok_throughout() -> None:
    found = Cluster().findings()
    assert [one for one in found if one.state != OK] == []
    assert len(found) > 25
    assert len({one.name for one in found}) == len(found), "each line names what it is about"


FINE: dict[str, Break] = {
    "a pool that fills": pool_says("Filling", ready=1, starting=1),
    "a pool that lacked pods just now": pool_says("Filling", since=NEW, ready=1),
    "sidecars that need no DNS": without_dns("10.1.0.1", "10.1.0.1"),
    "a new pool": lambda cluster: merged(
        cluster.one(Kind.POOLS, INSIDE, "default"), {"metadata": {"creationTimestamp": NEW}, "status": {"conditions": []}}
    ),
    "no Pod Security level": changed(Kind.NAMESPACES, CLUSTER, INSIDE, metadata={"labels": None}),
    "a quota with room": both(
        pool_says("Filling", since=NEW, ready=1),
        quota({"pods": "10", "requests.memory": "1Gi"}, {"pods": "2", "requests.memory": "600Mi"}),
    ),
    "a quota of exactly a full pool's size": quota({"pods": "2"}, {"pods": "2"}),
    "a quota of a pool that starts its last pod": both(
        pool_says("Filling", ready=1, starting=1), quota({"pods": "2"}, {"pods": "2"})
    ),
    "a wide limit range": limit("Pod", max={"memory": "2Gi", "cpu": "2"}),
    "a limit range for volumes": limit("PersistentVolumeClaim", max={"storage": "1Gi"}),
    "a pod that has just begun": both(
        stuck("sandbox", waiting("ContainerCreating")),
        changed(Kind.PODS, INSIDE, "i-9", metadata={"creationTimestamp": NEW}),
    ),
    "a pod that has had no node just now": changed(
        Kind.PODS, INSIDE, "i-1",
        status={"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "lastTransitionTime": NEW}]},
    ),
    "a pod that ends": both(
        stuck("sandbox", waiting("ErrImagePull")),
        changed(Kind.PODS, INSIDE, "i-9", metadata={"deletionTimestamp": NEW}),
    ),
    "an old failure of a webhook": lambda cluster: cluster.but(
        sidecar_logs={"i-1": f'{{"at": {NOW - 600}, "event": "webhook_failed", "error": "x"}}\n'}
    ),
    "a busy pool, without a free pod at a gateway that hears its sidecars": gateway_metrics(
        'sandlot_webhooks_total{event="heartbeat"} 9.0\nsandlot_ready_queue_depth{pool="default"} 0.0\n'
    ),
    "a busy pool whose sidecars tell another gateway": lambda cluster: cluster.but(
        gateway_metrics={"g-1": 'sandlot_ready_queue_depth{pool="default"} 0.0\n', "g-2": METRICS}
    ),
    "a new gateway, whose idle sidecars have not sent a heartbeat yet": gateway_metrics(f"process_start_time_seconds {NOW - 200}\n"),
    "secrets whose keys nobody tells": changed(Kind.SECRETS, OWN, "sandlot-api-key", metadata={"managedFields": None}),
    "a policy that opens everything to the gateways": lambda cluster: merged(
        cluster.one(Kind.POLICIES, OWN, "sandlot-gateway"), {"spec": {"ingress": [{}]}}
    ),
    "one tag with digests": both(
        settings("controller", SIDECAR_IMAGE="registry.example:5000/sidecar:v9@sha256:aa"),
        image("gateway", "registry.example:5000/gateway:v9@sha256:bb"),
        image("controller", "registry.example:5000/controller:v9@sha256:cc"),
    ),
    "a digest beside tags": image("gateway", "registry.example:5000/gateway@sha256:bb"),
    "a quota of other pods": both(
        quota({"pods": "10"}, {"pods": "2"}),
        changed(Kind.QUOTAS, INSIDE, "q", spec={"scopes": ["BestEffort"]}),
    ),
    "GPUs for one more pod": both(pool_says("Filling", ready=1, starting=1), with_gpus("8", label="H100"), requested(gpus=4)),
    "disk for a pool": both(
        pool_says("Filling", ready=1, starting=1),
        settings("controller", DISK_SHARE="0.5"),
        changed(Kind.NODES, CLUSTER, "worker", status={"allocatable": {"ephemeral-storage": "3Gi"}}),
    ),
    "full nodes of a full pool": requested(cpu=8, memory=32 << 30, pods=110),
    "a tainted node beside another": both(
        added(Kind.NODES, CLUSTER, node("second")),
        tainted("second", key="node-role.kubernetes.io/control-plane", effect="NoSchedule"),
    ),
    "a taint that sandboxes tolerate": both(
        settings("controller", TOLERATIONS='[{"key": "only", "operator": "Equal", "value": "us"}]'),
        tainted("worker", key="only", value="us", effect="NoSchedule"),
    ),
    "a taint that the runtime class tolerates": both(
        changed(
            Kind.RUNTIME_CLASSES, CLUSTER, "gvisor",
            scheduling={"tolerations": [{"key": "sandbox.gke.io/runtime", "value": "gvisor", "effect": "NoSchedule"}]},
        ),
        tainted("worker", key="sandbox.gke.io/runtime", value="gvisor", effect="NoSchedule"),
    ),
    "a faulty node without the runtime class's label": both(
        changed(Kind.RUNTIME_CLASSES, CLUSTER, "gvisor", scheduling={"nodeSelector": {"kubernetes.io/hostname": "worker"}}),
        added(Kind.NODES, CLUSTER, node("second")),
        changed(Kind.NODES, CLUSTER, "second", status={"conditions": [{"type": "Ready", "status": "False"}]}),
    ),
    "a taint that only warns": tainted("worker", key="only", effect="PreferNoSchedule"),
    "one cordoned node of two": both(
        added(Kind.NODES, CLUSTER, node("second")),
        changed(Kind.NODES, CLUSTER, "second", spec={"unschedulable": True}),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", FINE)
def test_what_passes_by_itself_or_is_allowed_is_no_problem(what: str) -> None:
    cluster = Cluster()
    FINE[what](cluster)
    assert [one for one in cluster.findings() if one.state != OK] == []


@pytest.mark.parametrize(
    ("amounts", "more"),
    [({}, 50), ({"cpu": 7.45}, 5), ({"cpu": 7.46}, 4), ({"memory": 31.5 * (1 << 30)}, 1), ({"pods": 107}, 3)],
    ids=["cores", "exactly", "a little less", "memory", "pods"],
)
def test_numbers_of_the_nodes_and_clocks_have_units(amounts: dict[str, float], more: int) -> None:
    cluster = Cluster()
    requested(**amounts)(cluster)
    found = {one.name: one.detail for one in cluster.findings()}
    said = f"{more} more pods fit, which request 0.11 cores and 0.28 GiB each"
    assert found["nodes: room for pool default"] == said
    used = {"cpu": 2.5, "memory": 3 << 30, "pods": 20, **amounts}
    assert found["nodes"] == (
        f"1 of 1 take new sandboxes; pods request {used['cpu']:.1f} of their 8.0 cores and "
        f"{used['memory'] / (1 << 30):.1f} of 32.0 GiB, and are {used['pods']} of at most 110"
    )
    assert found["clock of this machine"] == "it agrees with the API server's within 1 s"
    assert found["clocks of gateways and controllers"] == (
        "2 agree with the API server's within 2 s; g-1 is furthest from it"
    )
    assert found["clocks of the nodes"] == (
        "1 agree with the API server's within 1 s; worker is furthest from it"
    )


def test_a_missing_right_to_the_pods_of_others_is_told_with_your_rights() -> None:
    cluster = Cluster()
    cluster.but(requested=Unread("403: pods is forbidden", denied=True))
    found = {one.name: one for one in cluster.findings() if one.state != OK}
    assert {one.state for one in found.values()} == {UNCHECKED}
    assert "you may not list pods of all namespaces" in found["your rights"].detail
    assert "403: pods is forbidden" in found["nodes: room for pools"].detail


def test_parts_named_by_digest_have_the_charts_version() -> None:
    cluster = Cluster()
    settings("controller", SIDECAR_IMAGE="registry.example/sidecar@sha256:aa")(cluster)
    for component in ("gateway", "controller"):
        image(component, f"registry.example/{component}@sha256:bb")(cluster)
    (one,) = [one for one in cluster.findings() if one.name == "versions"]
    said = "all parts have the version 0.1.0, named by digest: gateway, controller, sidecar"
    assert (one.state, one.detail) == (OK, said)


@pytest.mark.parametrize("kind", [Kind.PODS, Kind.SECRETS, Kind.SLICES, Kind.POLICIES, Kind.POOLS])
def test_what_may_not_be_read_is_not_checked_and_stops_nothing_else(kind: Kind) -> None:
    cluster = Cluster()
    cluster.unread[kind, INSIDE] = Unread("403: pods is forbidden", denied=True)
    if kind is Kind.SECRETS:
        settings("controller", IMAGE_PULL_SECRETS='["images"]')(cluster)
    found = cluster.findings()
    assert not [one for one in found if one.state == PROBLEM]
    unchecked = {one.name: one for one in found if one.state == UNCHECKED}
    assert f"list {kind.plural} of namespace {INSIDE}" in unchecked.pop("your rights").detail
    assert unchecked
    for one in unchecked.values():
        assert "cannot be read: 403: pods is forbidden" in one.detail
        assert one.advice
    assert {"deployment sandlot-gateway", "clocks of the nodes"} <= {
        one.name for one in found if one.state == OK
    }


UNKNOWN: dict[str, tuple[Break, str, str]] = {
    "a right of the caller": (review("you", "create", "pods/portforward", False), "your rights", "create pods/portforward"),
    "a command line of another release": (
        lambda cluster: cluster.but(tool=replace(cluster.world.tool, version="0.2.0")),
        "version of this command line", "it is 0.2.0, and the release 0.1.0",
    ),
    "a full quota of some pods": (
        both(
            pool_says("Filling", since=NEW, ready=1),
            quota({"pods": "10"}, {"pods": "10"}),
            changed(Kind.QUOTAS, INSIDE, "q", spec={"scopeSelector": {"matchExpressions": []}}),
        ),
        f"quota {INSIDE}/q", "counts only some pods",
    ),
    "rights of others": (
        lambda cluster: cluster.but(reviews=(Review("gateway", "list", "pods", INSIDE, Unread("403: forbidden")),)),
        "rights of the gateway", "403: forbidden",
    ),
    "what sidecars that have no DNS know": (
        without_dns(), "DNS", "there is no sidecar whose address of the gateways can be seen",
    ),
    "metrics without a key": (
        lambda cluster: cluster.but(gateway_metrics={"g-1": Unread("/metrics answers 401", denied=True)}),
        "gateway g-1", "answers 401",
    ),
    "metrics of a controller": (
        lambda cluster: cluster.but(controller_metrics={"c-1": Unread("no connection: refused")}),
        "controller c-1", "metrics cannot be read: no connection: refused",
    ),
    "requests of others' pods": (
        lambda cluster: cluster.but(requested=Unread("500: no etcd")), "nodes: room for pools", "500: no etcd",
    ),
    "GPUs that no node lists": (
        both(pool_says("Filling", ready=1, starting=1), with_gpus(label="H100")),
        "nodes: room for pool default", "no node offers nvidia.com/gpu, of which its pods request 4 each",
    ),
    "the clock of a gateway that nobody reaches": (
        lambda cluster: cluster.but(part_clocks={"g-1": None, "c-1": Skew(-0.8, 1.2)}),
        "clocks of gateways and controllers",
        "1 agree with the API server's within 2 s; c-1 is furthest from it; of g-1 no time is known",
    ),
    "the clocks of all gateways and controllers": (
        lambda cluster: cluster.but(part_clocks={"g-1": None, "c-1": None}),
        "clocks of gateways and controllers", "of g-1, c-1 no time is known",
    ),
    "a clock of a gateway that took long to tell it": (
        lambda cluster: cluster.but(part_clocks={"g-1": Skew(7, 20), "c-1": Skew(-0.8, 1.2)}),
        "clocks of gateways and controllers", "of g-1 no time is known",
    ),
    "an API server that took long to tell its time": (
        lambda cluster: cluster.but(clock=Skew(7, 20)),
        "clock of this machine", "the API server took long to answer: they agree within 20 s, or better",
    ),
    "an API server without a time": (
        lambda cluster: cluster.but(clock=None), "clock of this machine", "the API server's answer has no time",
    ),
    "logs of sidecars": (
        lambda cluster: cluster.but(sidecar_logs={"i-1": Unread("502: no kubelet")}),
        "webhooks of sidecars", "no kubelet",
    ),
    "no sidecar": (lambda cluster: cluster.but(sidecar_logs={}), "webhooks of sidecars", "no sandbox's pod runs"),
}  # fmt: skip


@pytest.mark.parametrize("what", UNKNOWN)
def test_what_cannot_be_told_is_not_called_ok(what: str) -> None:
    breaks, name, detail = UNKNOWN[what]
    cluster = Cluster()
    breaks(cluster)
    (one,) = [one for one in cluster.findings() if one.state != OK]
    assert (one.name, one.state) == (name, UNCHECKED)
    assert detail in one.detail
    assert one.advice


def test_many_faults_of_one_kind_are_not_all_lines() -> None:
    cluster = Cluster()
    down = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
    cluster.objects_of(Kind.NODES).extend(node(f"n-{number}") | {"status": down} for number in range(40))
    told = [one for one in cluster.findings() if one.state == PROBLEM]
    assert len(told) == 11
    assert told[-1].detail == "30 more nodes have faults"
