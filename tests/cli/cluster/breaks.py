"""Ways to break one thing of a healthy installation."""

from __future__ import annotations

import json
from typing import Any

from sandlot.cli.cluster.finding import OK, PROBLEM
from sandlot.cli.cluster.world import CLUSTER, Kind, Review
from sandlot_contract.sidecar import CONFIG_VARIABLE

from tests.cli.cluster.worlds import NEW, OLD, Break, Cluster, Raw, named, pod

OWN, INSIDE = "sandlot", "sandlot-sandboxes"
Problem = tuple[
    Break, str, str, str
]  # how to break it; the finding's name, and parts of its detail and advice


def check_problem(problem: Problem) -> None:
    """It is the only one that is told."""
    breaks, name, detail, advice = problem
    cluster = Cluster()
    breaks(cluster)
    wrong = [one for one in cluster.findings() if one.state != OK]
    assert [(one.name, one.state) for one in wrong] == [(name, PROBLEM)]
    assert detail in wrong[0].detail
    assert advice in wrong[0].advice


def merged(raw: Raw, change: Raw) -> None:
    for name, value in change.items():
        if isinstance(value, dict) and isinstance(raw.get(name), dict):
            merged(raw[name], value)
        else:
            raw[name] = value


def changed(kind: Kind, namespace: str, name: str, **change: Any) -> Break:
    return lambda cluster: merged(cluster.one(kind, namespace, name), change)


def removed(kind: Kind, namespace: str, name: str) -> Break:
    return lambda cluster: cluster.remove(kind, namespace, name)


def added(kind: Kind, namespace: str, *raws: Raw) -> Break:
    return lambda cluster: cluster.objects_of(kind, namespace).extend(raws)


def without_dns(*addresses: str | None) -> Break:
    """No policy lets sandboxes ask DNS; these are the gateways' addresses that their sidecars were given."""
    pods = []
    for number, address in enumerate(addresses):
        config = json.dumps({"token": "x", "webhook_address": address})
        raw = pod(f"i-1{number}", "sandbox")
        raw["spec"]["containers"] = [{"name": "sidecar", "env": [{"name": CONFIG_VARIABLE, "value": config}]}]
        pods.append(raw)
    return both(removed(Kind.POLICIES, INSIDE, "dns"), added(Kind.PODS, INSIDE, *pods))


def waiting(reason: str, message: str = "", *, container: str = "sandbox", **more: Any) -> list[Raw]:
    state = {"waiting": {"reason": reason, "message": message}}
    return [{"name": container, "image": "python:3.12", "restartCount": 4, "state": state, **more}]


def stuck(component: str, statuses: list[Raw], name: str = "i-9") -> Break:
    """A pod that is not ready, with these containers."""
    raw = pod(name, component, pool="default", ready=False)
    raw["status"]["containerStatuses"] = statuses
    return added(Kind.PODS, OWN if component in ("gateway", "controller") else INSIDE, raw)


def settings(component: str, **values: str) -> Break:
    def apply(cluster: Cluster) -> None:
        spec = cluster.one(Kind.DEPLOYMENTS, OWN, f"sandlot-{component}")["spec"]["template"]["spec"]
        env = spec["containers"][0]["env"]
        given = {f"SANDLOT_{name}": value for name, value in values.items()}
        spec["containers"][0]["env"] = [one for one in env if one["name"] not in given] + [
            {"name": name, "value": value} for name, value in given.items()
        ]

    return apply


def template_of(component: str, **change: Any) -> Break:
    return changed(Kind.DEPLOYMENTS, OWN, f"sandlot-{component}", spec={"template": {"spec": change}})


def pool_says(reason: str, message: str = "", *, since: str = OLD, **counts: int) -> Break:
    ready = {
        "type": "Ready",
        "status": "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": since,
    }
    return changed(
        Kind.POOLS, INSIDE, "default", status={"conditions": [ready], "message": message, **counts}
    )


def both(*breaks: Break) -> Break:
    def apply(cluster: Cluster) -> None:
        for one in breaks:
            one(cluster)

    return apply


def quota(hard: dict[str, str], used: dict[str, str]) -> Break:
    return added(Kind.QUOTAS, INSIDE, named("q", INSIDE) | {"status": {"hard": hard, "used": used}})


def limit(kind: str, **bounds: dict[str, str]) -> Break:
    return added(Kind.LIMITS, INSIDE, named("l", INSIDE) | {"spec": {"limits": [{"type": kind, **bounds}]}})


def event(about: str, reason: str, message: str, *, namespace: str = INSIDE, at: str = NEW) -> Break:
    """Of the newer kind, whose time is not `lastTimestamp`."""
    raw = {"involvedObject": {"kind": "Pod", "name": about}, "reason": reason, "message": message}
    return added(Kind.EVENTS, namespace, named("e", namespace) | raw | {"eventTime": at})


def tainted(name: str, **taint: str) -> Break:
    return changed(Kind.NODES, CLUSTER, name, spec={"taints": [taint]})


def image(component: str, reference: str) -> Break:
    def apply(cluster: Cluster) -> None:
        spec = cluster.one(Kind.DEPLOYMENTS, OWN, f"sandlot-{component}")["spec"]["template"]["spec"]
        spec["containers"][0]["image"] = reference

    return apply


def review(who: str, verb: str, resource: str, allowed: bool) -> Break:
    one = Review(who, verb, resource, INSIDE, allowed)
    return lambda cluster: cluster.but(reviews=(*cluster.world.reviews, one))


def requested(*, gpus: float = 0, **amounts: float) -> Break:
    """Of the node, by all pods together."""
    used = {"cpu": 2.5, "memory": 3 << 30, "pods": 20, "nvidia.com/gpu": gpus, **amounts}
    return lambda cluster: cluster.but(requested={"worker": used})


def with_gpus(offered: str = "", *, label: str = "") -> Break:
    """A pool of H100, and what the node offers and is labelled with."""
    template = {"gpuCount": 4, "gpuType": "H100"}
    labels = {"nvidia.com/gpu.product": label} if label else {}
    allocatable = {"nvidia.com/gpu": offered} if offered else {}
    return both(
        changed(Kind.POOLS, INSIDE, "default", spec={"template": template}),
        changed(
            Kind.NODES, CLUSTER, "worker", metadata={"labels": labels}, status={"allocatable": allocatable}
        ),
    )


def gateway_metrics(page: str) -> Break:
    return lambda cluster: cluster.but(gateway_metrics={"g-1": page})


def field_removed(name: str, *path: str) -> Break:
    def apply(cluster: Cluster) -> None:
        at = cluster.one(Kind.DEFINITIONS, CLUSTER, name)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for part in path[:-1]:
            at = at["properties"][part]
        del at["properties"][path[-1]]

    return apply
