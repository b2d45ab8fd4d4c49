"""Real faults of an installed release, for the alerts; each is healed at the end of its block."""

from __future__ import annotations

import base64
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from tests.cluster import cluster
from tests.cluster.registry import tell
from tests.kubernetes.boxes import until
from tests.kubernetes.killing import is_ready, metric
from tests.kubernetes.stack import Stack

DEAD_REGISTRY = "dead.sandlot.test:5000"
# Sets the limit of the pod's first process and prints the one before.
LIMIT = """
import resource, sys
soft, hard = resource.prlimit(1, resource.RLIMIT_NOFILE)
resource.prlimit(1, resource.RLIMIT_NOFILE, (int(sys.argv[1]), hard))
print(soft)
"""
_CHOSEN = "app.kubernetes.io/component="


def pods(stack: Stack, component: str) -> list[dict[str, Any]]:
    """Those of `gateway`, `controller` or `node-agent` that are not on their way out."""
    where = stack.sandboxes if component == "node-agent" else stack.namespace
    found = stack.get("pods", "-n", where, "-l", f"{_CHOSEN}{component}")["items"]
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def workers(stack: Stack) -> list[str]:
    """The nodes of sandboxes."""
    return names(stack.get("nodes", "-l", "!node-role.kubernetes.io/control-plane")["items"])


def warm_pods(stack: Stack) -> list[dict[str, Any]]:
    """Those of the pool that run."""
    found = stack.get("pods", "-n", stack.sandboxes, "-l", "sandlot.dev/pool=default")["items"]
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"] and is_ready(pod)]


def names(found: list[dict[str, Any]]) -> list[str]:
    return [each["metadata"]["name"] for each in found]


@contextmanager
def none_of(stack: Stack, component: str) -> Iterator[None]:
    """No gateway, or no controller."""
    deployment = (f"deployment/{stack.release}-{component}", "-n", stack.namespace)
    stack.kubectl("scale", *deployment, "--replicas=0")
    try:
        yield
    finally:
        stack.kubectl("scale", *deployment, "--replicas=2")
        stack.kubectl("rollout", "status", *deployment, "--timeout=240s")


@contextmanager
def no_node_agent(stack: Stack) -> Iterator[None]:
    """No node has the label that node agents require."""
    agents = (f"daemonset/{stack.release}-node-agent", "-n", stack.sandboxes)
    _merge(stack, *agents, {"spec": {"template": {"spec": {"nodeSelector": {"no": "node"}}}}})
    try:
        yield
    finally:
        _merge(stack, *agents, {"spec": {"template": {"spec": {"nodeSelector": None}}}})
        stack.kubectl("rollout", "status", *agents, "--timeout=240s")


@contextmanager
def stopped(pod: dict[str, Any]) -> Iterator[None]:
    """A pod whose process hangs: it accepts connections and answers none."""
    _signal(pod, "SIGSTOP")
    try:
        yield
    finally:
        _signal(pod, "SIGCONT")


def restart(stack: Stack, name: str) -> None:
    """Kill a controller, as the kernel does that has no memory left, and wait until it has begun again."""

    def running(restarts: int) -> dict[str, Any] | None:
        pod = stack.get("pod", name, "-n", stack.namespace)
        (status,) = pod["status"]["containerStatuses"]
        return pod if status["ready"] and status["restartCount"] >= restarts else None

    pod = until(lambda: running(0))
    assert pod is not None
    (status,) = pod["status"]["containerStatuses"]
    _signal(pod, "SIGKILL")
    until(lambda: running(status["restartCount"] + 1))


@contextmanager
def few_descriptors(stack: Stack, gateway: dict[str, Any], *, most: int = 400) -> Iterator[None]:
    """A runtime that gives a gateway's process a small limit, and clients with many connections."""
    words = ("exec", "-n", stack.namespace, gateway["metadata"]["name"], "--", "python3", "-c", LIMIT)
    before = stack.kubectl(*words, str(most)).strip()
    try:
        with ExitStack() as connections:
            while metric(stack, gateway, "process_open_fds") < 0.85 * most:
                for _ in range(10):
                    address = (gateway["status"]["podIP"], 8642)
                    connections.enter_context(socket.create_connection(address, 10))
            yield
    finally:
        stack.kubectl(*words, before)


@contextmanager
def bad_api_keys(stack: Stack) -> Iterator[None]:
    """A Secret whose lines are no API keys, in each gateway."""
    secrets = stack.get("secrets", "-n", stack.namespace)["items"]
    (secret,) = [item for item in secrets if "api-key" in (item.get("data") or {})]
    where = (f"secret/{secret['metadata']['name']}", "-n", stack.namespace)
    bad = base64.b64encode(b"a key:of a tenant:without a number\n").decode()
    try:
        _merge(stack, *where, {"data": {"api-key": bad}})
        _read_again(stack)
        yield
    finally:
        _merge(stack, *where, {"data": {"api-key": secret["data"]["api-key"]}})
        _read_again(stack)


def _read_again(stack: Stack) -> None:
    """A kubelet writes changed Secrets into a pod that changes at once, and else within a minute."""
    for name in names(pods(stack, "gateway")):
        changed = json.dumps({"metadata": {"annotations": {"read": str(time.time_ns())}}})
        stack.kubectl("patch", "pod", name, "-n", stack.namespace, "--type=merge", "-p", changed)


@contextmanager
def no_room_for_records(stack: Stack, pod: dict[str, Any], path: str) -> Iterator[None]:
    """A full disk where one gateway writes its audit log."""
    words = ("exec", "-n", stack.namespace, pod["metadata"]["name"], "--", "sh", "-c")
    stack.kubectl(*words, f"rm -f {path}; ln -s /dev/full {path}")
    try:
        yield
    finally:
        stack.kubectl(*words, f"rm {path}")


@contextmanager
def pool(stack: Stack, name: str, template: dict[str, Any]) -> Iterator[None]:
    body = {
        "apiVersion": "sandlot.dev/v1alpha1",
        "kind": "SandboxPool",
        "metadata": {"name": name, "namespace": stack.sandboxes},
        "spec": {"size": 1, "template": {"cpu": 1, "memory": 384 << 20, "disk": 1 << 30, **template}},
    }
    stack.kubectl("apply", "-f", "-", stdin=json.dumps(body))
    try:
        yield
    finally:
        stack.kubectl("delete", "sandboxpool", name, "-n", stack.sandboxes)


@contextmanager
def no_way_in(stack: Stack) -> Iterator[None]:
    """A NetworkPolicy that lets no gateway into a sandbox's pod."""
    where = ("networkpolicy/gateway-and-controller", "-n", stack.sandboxes)
    before = stack.get(*where)["spec"]["ingress"]
    _merge(stack, *where, {"spec": {"ingress": []}})
    try:
        yield
    finally:
        _merge(stack, *where, {"spec": {"ingress": before}})


@contextmanager
def no_more_pods(stack: Stack) -> Iterator[None]:
    """A ResourceQuota that the sandboxes' namespace has used up."""
    where = ("quota", "full", "-n", stack.sandboxes)
    stack.kubectl("create", *where, "--hard=pods=0")
    try:
        until(lambda: stack.get(*where)["status"].get("hard"))
        yield
    finally:
        stack.kubectl("delete", *where)


@contextmanager
def without_right(stack: Stack, resource: str) -> Iterator[None]:
    """New controllers may neither list nor watch it; those that watch already would go on."""
    where = ("role", f"{stack.release}-controller", "-n", stack.sandboxes)
    before = stack.get(*where)["rules"]
    rest = [rule for rule in before if resource not in rule["resources"]]
    assert len(rest) == len(before) - 1
    try:
        _merge(stack, *where, {"rules": rest})
        stack.kubectl("delete", "pod", "-n", stack.namespace, "-l", f"{_CHOSEN}controller")
        yield
    finally:
        _merge(stack, *where, {"rules": before})
        deployment = (f"deployment/{stack.release}-controller", "-n", stack.namespace)
        stack.kubectl("rollout", "status", *deployment, "--timeout=240s")


@contextmanager
def dead_registry(node: str) -> Iterator[str]:
    """An image of a registry at whose address nothing listens any more."""
    engine = cluster.recorded()
    try:
        tell(engine, node, host=DEAD_REGISTRY, address="127.0.0.1:9")
        yield f"{DEAD_REGISTRY}/image:1"
    finally:
        engine.on_node(node, "rm", "-rf", f"/etc/containerd/certs.d/{DEAD_REGISTRY}")


def _merge(stack: Stack, *words: Any) -> None:
    *where, patch = words
    stack.kubectl("patch", *where, "--type=merge", "-p", json.dumps(patch))


def _signal(pod: dict[str, Any], name: str) -> None:
    words = ("ctr", "-n", "k8s.io", "tasks", "kill", "-s", name, _container(pod))
    cluster.recorded().on_node(pod["spec"]["nodeName"], *words)


def _container(pod: dict[str, Any]) -> str:
    (status,) = pod["status"]["containerStatuses"]
    return status["containerID"].removeprefix("containerd://")
