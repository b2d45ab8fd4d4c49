"""Ends components of the cluster as a crash would, and brings them back: for the tests of failures."""

from __future__ import annotations

import json

from tests.cluster import cluster, sysctls
from tests.cluster.engine import Engine
from tests.cluster.paths import CLUSTER
from tests.cluster.shell import ClusterError

CONTROL_PLANE = f"{CLUSTER}-control-plane"
STATIC_PODS = {"apiserver": "kube-apiserver", "etcd": "etcd"}
LEADERS = ("kube-controller-manager", "kube-scheduler")
COMPONENTS = (*STATIC_PODS, "kubelet", "node", "container")
TARGETS = (
    "kubelet, node: the node's name; container: NAMESPACE/POD/CONTAINER; not used for apiserver and etcd"
)


def kill(*, component: str, target: str | None) -> None:
    """Ends a component at once. It stays away until it is healed; a container is started again by its pod's policy."""
    engine = cluster.recorded()
    match component:
        case "apiserver" | "etcd":
            program = STATIC_PODS[component]
            # The manifest first: the kubelet would start it again otherwise.
            script = (
                "mkdir -p /etc/kubernetes/stopped; "
                f"mv /etc/kubernetes/manifests/{program}.yaml /etc/kubernetes/stopped/ 2>/dev/null; "
                f"pkill -KILL -x {program}; "
                f"test -e /etc/kubernetes/stopped/{program}.yaml"
            )
            engine.on_node(CONTROL_PLANE, "sh", "-c", script)
        case "kubelet":
            node = _node(engine, target)
            engine.on_node(node, "sh", "-c", "systemctl kill -s KILL kubelet; systemctl stop kubelet")
        case "node":
            engine.run([engine.provider, "kill", "--signal", "KILL", _node(engine, target)])
        case "container":
            _kill_container(engine, target=target)
        case _:
            raise ClusterError(f"component {component!r}: it is one of {', '.join(COMPONENTS)}")


def heal(*, component: str, target: str | None) -> None:
    """Brings a component back; it is not an error when it was not away."""
    engine = cluster.recorded()
    match component:
        case "apiserver" | "etcd":
            name = f"{STATIC_PODS[component]}.yaml"
            # As at a boot, when nothing answers: beside an API server without its etcd, whose answers never come, a
            # kubelet takes minutes to start what it has seen die.
            script = (
                f"! test -e /etc/kubernetes/stopped/{name} || {{ systemctl stop kubelet; pkill -KILL -x kube-apiserver; "
                f"mv /etc/kubernetes/stopped/{name} /etc/kubernetes/manifests/ && systemctl start kubelet; }}"
            )
            engine.on_node(CONTROL_PLANE, "sh", "-c", script)
            cluster.wait_for_api(engine)
            _wait_for_leaders(engine)
        case "kubelet":
            engine.on_node(_node(engine, target), "systemctl", "start", "kubelet")
        case "node":
            _start_node(engine, _node(engine, target))
        case "container":
            return
        case _:
            raise ClusterError(f"component {component!r}: it is one of {', '.join(COMPONENTS)}")


def _wait_for_leaders(engine: Engine) -> None:
    """Waits until each renews its Lease: those that could not have exited, and a kubelet starts them again later.

    Without a controller manager no node is found to be lost.
    """
    renewals: dict[str, set[str]] = {name: set() for name in LEADERS}

    def all_renew() -> bool:
        for name, seen in renewals.items():
            words = ("get", "lease", name, "-n", "kube-system", "-o", "jsonpath={.spec.renewTime}")
            seen.add(cluster.kubectl(engine, *words, timeout=30))
        return all(len(seen) > 1 for seen in renewals.values())

    cluster.wait_for(all_renew, what=f"{' and '.join(LEADERS)} work", seconds=240)


def _start_node(engine: Engine, node: str) -> None:
    """Starts a node again; the API server may still take it for the one that was killed, so a new id is waited for."""
    running = engine.run([engine.provider, "inspect", "--format", "{{.State.Running}}", node]).strip()
    if running == "true":
        return
    before, _ = cluster.machine_id(engine, node)
    engine.run([engine.provider, "start", node])

    def is_back() -> bool:
        now, ready = cluster.machine_id(engine, node)
        return ready and now != before

    cluster.wait_for(is_back, what=f"node {node} is Ready again", seconds=300)
    cluster.route_pods(engine)
    sysctls.settle()


def _node(engine: Engine, target: str | None) -> str:
    names = cluster.nodes(engine)
    if target not in names:
        raise ClusterError(f"target {target!r}: a node's name is needed, one of {', '.join(names)}")
    return target


def _kill_container(engine: Engine, *, target: str | None) -> None:
    """Kills a container's first process through its shim, which works under runc and under gVisor alike."""
    parts = (target or "").split("/")
    if len(parts) != 3:
        raise ClusterError(f"target {target!r}: NAMESPACE/POD/CONTAINER is needed")
    namespace, pod, container = parts
    document = json.loads(cluster.kubectl(engine, "get", "pod", pod, "-n", namespace, "-o", "json"))
    statuses = document["status"].get("containerStatuses", [])
    found = [status for status in statuses if status["name"] == container and status.get("containerID")]
    if not found:
        raise ClusterError(f"target {target!r}: no such container is running")
    identity = found[0]["containerID"].removeprefix("containerd://")
    node = document["spec"]["nodeName"]
    engine.on_node(node, "ctr", "-n", "k8s.io", "tasks", "kill", "-s", "SIGKILL", identity)
