"""Ends what runs on the test cluster as a crash would, and tells who is who: gateways, the controller that leads."""

from __future__ import annotations

import json
import os
import urllib.request
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest
from sandlot import Client, Pools, Sandbox

from tests.cluster import faults
from tests.kubernetes.boxes import resource_of, until
from tests.kubernetes.stack import Stack

# On a machine that does other things too a kubelet takes its time to tell, and to end a pod.
SOON = 120.0  # seconds


def own_cluster_only() -> None:
    """Another's cluster is not ours to break."""
    if os.environ.get("SANDLOT_TEST_CONTEXT"):
        pytest.skip("kills on the cluster of `make cluster` only")


def kill(namespace: str, pod: str, container: str) -> None:
    """SIGKILL to the first process of a container."""
    faults.kill(component="container", target=f"{namespace}/{pod}/{container}")


def pods(stack: Stack, component: str) -> list[dict[str, Any]]:
    """Of `gateway` or `controller`, those that are not on their way out."""
    selector = f"app.kubernetes.io/name=sandlot,app.kubernetes.io/component={component}"
    found = stack.get("pods", "-n", stack.namespace, "-l", selector)["items"]
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def whole(stack: Stack, component: str) -> None:
    """Waits until every pod of it is ready again."""

    def ready() -> bool:
        found = pods(stack, component)
        return len(found) == 2 and all(is_ready(pod) for pod in found)

    until(ready, seconds=240)


def whole_again(stack: Stack, component: str, *, killed: dict[str, Any]) -> None:
    """The same once the kubelet has started this pod's killed container again: before, it still takes it for ready."""
    name, before = killed["metadata"]["name"], _restarts(killed)

    def restarted() -> bool:
        return any(
            pod["metadata"]["name"] == name and _restarts(pod) > before for pod in pods(stack, component)
        )

    until(restarted, seconds=240, pause=0.5)
    whole(stack, component)


def _restarts(pod: dict[str, Any]) -> int:
    return sum(status["restartCount"] for status in pod["status"].get("containerStatuses", []))


def is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def running_requests(stack: Stack, gateway: dict[str, Any]) -> float:
    """How many requests to sandboxes one gateway has in hand."""
    return metric(stack, gateway, "sandlot_running")


def warm_everywhere(stack: Stack, *, size: int) -> None:
    """Waits until every gateway has so many to give away: the pool's status may be from before an outage."""

    def all_have() -> bool:
        try:
            return all(
                metric(stack, one, "sandlot_ready_instances") >= size for one in pods(stack, "gateway")
            )
        except OSError:  # one that was started again does not listen yet
            return False

    until(all_have, seconds=180)


def pool_is_warm_everywhere(stack: Stack, name: str, *, size: int = 1) -> bool:
    """Whether every gateway has so many of it to give away: the controller may hear first that a pod is ready."""
    for gateway in pods(stack, "gateway"):
        with Client(url=f"http://{gateway['status']['podIP']}:8642", api_key=stack.api_key) as client:
            if not any(pool.name == name and pool.ready >= size for pool in Pools(client=client).list()):
                return False
    return True


def metric(stack: Stack, gateway: dict[str, Any], name: str) -> float:
    """One series of a gateway's, 0 while there is none of that name and labels."""
    url = f"http://{gateway['status']['podIP']}:8642/metrics"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {stack.api_key}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"{name} "))


@dataclass(frozen=True)
class Lease:
    """The controllers' Lease: who holds it, since when, and when its holder last said so."""

    holder: str  # a process: its pod, and a word of its own; empty while none does
    acquired: datetime
    renewed: datetime

    @property
    def pod(self) -> str:
        return self.holder.rpartition("_")[0]


def held_lease(stack: Stack) -> Lease | None:
    """None while no controller holds it."""
    leases = stack.get("leases.coordination.k8s.io", "-n", stack.namespace)["items"]
    (found,) = [one for one in leases if one["metadata"]["name"].endswith("-controller")]
    spec = found.get("spec", {})
    if not spec.get("holderIdentity"):
        return None
    times = (datetime.fromisoformat(spec[name]) for name in ("acquireTime", "renewTime"))
    return Lease(spec["holderIdentity"], *times)


def verdict(box: Sandbox) -> str | None:
    found = box.refresh().verdict
    return None if found is None else str(found)


def ended(stack: Stack, box: Sandbox, *, pod: str, seconds: float = SOON) -> str:
    """The verdict, once callers are told of it; the resource then says the same, and the pod is gone."""
    told = str(until(lambda: verdict(box), seconds=seconds))
    until(lambda: resource_of(stack, box).get("status", {}).get("verdict") == told, seconds=SOON)
    until(lambda: pod not in sandbox_pods(stack), seconds=SOON)
    return told


def sandbox_pods(stack: Stack) -> dict[str, dict[str, Any]]:
    """By name, those on their way out too."""
    return {pod["metadata"]["name"]: pod for pod in stack.get("pods", "-n", stack.sandboxes)["items"]}


def evict(stack: Stack, pod: str) -> None:
    """As `kubectl drain` does."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": stack.sandboxes},
    }
    path = f"/api/v1/namespaces/{stack.sandboxes}/pods/{pod}/eviction"
    stack.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(body))
