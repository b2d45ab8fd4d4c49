"""What the cluster itself is made of dies: API server, etcd, DNS, a kubelet, a node; each as docs/failures.md promises."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import httpx
import pytest
from sandlot import Client, Sandbox, SandboxLost

from tests.cluster import faults
from tests.kubernetes.boxes import filled, pod_of, resource_of, until, warm
from tests.kubernetes.killing import (
    SOON,
    metric,
    own_cluster_only,
    pods,
    sandbox_pods,
    verdict,
    warm_everywhere,
    whole,
)
from tests.kubernetes.stack import IMAGE, POOL, Stack

pytestmark = [pytest.mark.whole_cluster, pytest.mark.parametrize("stack", ["runc"], indirect=True)]
# Kubernetes takes a node for silent 50 s after its last word, the controller for lost 30 s (nodeGrace) after that.
NODE_LOST = 50.0 + 30.0


@pytest.fixture(autouse=True)
def own_cluster() -> None:
    own_cluster_only()


@contextmanager
def without(component: str, target: str | None = None) -> Iterator[None]:
    faults.kill(component=component, target=target)
    try:
        yield
    finally:
        faults.heal(component=component, target=target)


@contextmanager
def cordoned(stack: Stack, node: str) -> Iterator[None]:
    stack.kubectl("cordon", node)
    try:
        yield
    finally:
        stack.kubectl("uncordon", node)


@pytest.mark.parametrize("component", ["apiserver", "etcd"])
def test_without_an_api_server_sandboxes_and_warm_claims_go_on(
    stack: Stack, client: Client, component: str
) -> None:
    filled(stack, size=2)
    warm_everywhere(stack, size=2)
    url, key = stack.url, stack.api_key
    cold = {"docker_image": IMAGE, "cpu_cores": 1, "memory_gb": 0.25, "disk_size_gb": 1, "wait_seconds": 20}
    # What is claimed ends once the component is back.
    with warm(client) as box, ExitStack() as afterwards:
        with without(component):
            assert box.exec("echo on", timeout=30).stdout == "on\n"
            claimed = afterwards.enter_context(warm(client))
            assert claimed.info.pool_hit is True
            assert claimed.exec("echo claimed", timeout=30).stdout == "claimed\n"
            headers = {"Authorization": f"Bearer {key}"}
            refused = httpx.post(f"{url}/api/v1/sandbox", json=cold, headers=headers, timeout=60)
            assert refused.status_code == 503, refused.text
            assert int(refused.headers["retry-after"]) >= 1
            assert box.exec("echo still", timeout=30).stdout == "still\n"
        # The record of the claim was written late; what needs the API server works again.
        assert resource_of(stack, claimed)["spec"]["podName"]
        with Sandbox.create(IMAGE, client=client, cpu=1, memory=256 << 20, disk=1 << 30, wait=240) as late:
            assert late.info.pool_hit is False
            assert late.exec("echo cold", timeout=60).stdout == "cold\n"
        assert box.exec("echo kept", timeout=60).stdout == "kept\n"
    filled(stack, size=POOL)


@contextmanager
def without_dns(stack: Stack) -> Iterator[None]:
    """No CoreDNS, until the end of the block."""
    deployment = ("deployment/coredns", "-n", "kube-system")
    try:
        stack.kubectl("scale", *deployment, "--replicas=0")
        until(lambda: not stack.get("pods", "-n", "kube-system", "-l", "k8s-app=kube-dns")["items"])
        yield
    finally:
        stack.kubectl("scale", *deployment, "--replicas=2")  # as kubeadm has it
        stack.kubectl("rollout", "status", *deployment, "--timeout=240s")


def test_without_cluster_dns_creates_commands_and_deletes_go_on(stack: Stack, client: Client) -> None:
    filled(stack, size=POOL)
    warm_everywhere(stack, size=POOL)
    whole(stack, "gateway")
    with without_dns(stack):
        ready = readies(stack)
        with Sandbox.create(IMAGE, client=client, cpu=1, memory=256 << 20, disk=1 << 30, wait=240) as cold:
            assert cold.info.pool_hit is False
            # Its sidecar has never had a name server, and tells a gateway all the same.
            until(lambda: readies(stack) > ready)
            with warm(client) as box:
                assert box.info.pool_hit is True
                # Past the Service, so that each gateway is asked, and not twice the same.
                for url in gateway_urls(stack):
                    with Client(url=url, api_key=stack.api_key) as one:
                        assert (
                            Sandbox.connect(cold.id, client=one).exec("echo cold", timeout=60).stdout
                            == "cold\n"
                        )
                        assert (
                            Sandbox.connect(box.id, client=one).exec("echo warm", timeout=60).stdout
                            == "warm\n"
                        )
            assert verdict(box) == "deleted"
        assert verdict(cold) == "deleted"
    filled(stack, size=POOL)


def gateway_urls(stack: Stack) -> list[str]:
    """Those of the gateways' own pods, of which there are two."""
    urls = [f"http://{pod['status']['podIP']}:8642" for pod in pods(stack, "gateway")]
    assert len(urls) == 2
    return urls


def readies(stack: Stack) -> float:
    """How often sidecars have told a gateway that they are ready."""
    return sum(metric(stack, one, 'sandlot_webhooks_total{event="ready"}') for one in pods(stack, "gateway"))


def test_without_its_kubelet_a_node_s_sandboxes_go_on(stack: Stack, client: Client) -> None:
    filled(stack, size=1)
    with warm(client) as box:
        node = pod_of(stack, box)["spec"]["nodeName"]
        with without("kubelet", node):
            assert box.exec("echo on", timeout=30).stdout == "on\n"
        assert box.exec("echo kept", timeout=30).stdout == "kept\n"
        until(lambda: node in ready_nodes(stack))
        assert verdict(box) is None


def test_a_lost_node_ends_its_sandboxes_and_the_pool_fills_elsewhere(stack: Stack) -> None:
    filled(stack, size=POOL)
    whole(stack, "gateway")
    gateways = {pod["spec"]["nodeName"]: pod["status"]["podIP"] for pod in pods(stack, "gateway")}
    boxes: dict[str, Sandbox] = {}
    made: list[Sandbox] = []
    with ExitStack() as clients, ExitStack() as afterwards:
        maker = client = clients.enter_context(Client(url=stack.url, api_key=stack.api_key))
        afterwards.callback(lambda: Sandbox.delete_many([box.id for box in made], client=client))
        workers = sorted(ready_nodes(stack) - {faults.CONTROL_PLANE})
        with ExitStack() as cordons:
            # In reused pods the record that tells a sandbox's node takes ten seconds.
            while len(boxes) < len(workers) and len(made) < 8:
                made.append(warm(maker))
                node = pod_of(stack, made[-1])["spec"]["nodeName"]
                if node not in boxes:
                    boxes[node] = made[-1]
                    # The controller packs: without this, all sandboxes can be on one node.
                    cordons.enter_context(cordoned(stack, node))
        assert sorted(boxes) == workers
        # Not the first if it can be another: callers come in there, and it may come back under another address.
        victim = next(node for node in reversed(workers) if gateways.keys() - {node})
        survivor = next(node for node in workers if node != victim)
        address = next(address for node, address in gateways.items() if node != victim)
        lost = pod_of(stack, boxes[victim])["metadata"]["name"]
        # Past the Service, which goes on sending connections to the dead gateway until the node is known to be silent.
        client = clients.enter_context(Client(url=f"http://{address}:8642", api_key=stack.api_key))
        dying = Sandbox.connect(boxes[victim].id, client=client)
        living = Sandbox.connect(boxes[survivor].id, client=client)
        with ThreadPoolExecutor(1) as thread:
            call = thread.submit(dying.exec, "touch /tmp/began; sleep 280", timeout=290)
            assert dying.exec("until [ -e /tmp/began ]; do sleep 0.1; done", timeout=60).exit_code == 0
            with without("node", victim):
                killed = time.monotonic()
                assert living.exec("echo on", timeout=60).stdout == "on\n"
                assert until(lambda: verdict(dying), seconds=NODE_LOST + 40) == "node_lost"
                took = time.monotonic() - killed
                assert living.exec("echo still", timeout=60).stdout == "still\n"
                with pytest.raises(SandboxLost) as caught:
                    call.result(timeout=SOON)
                assert caught.value.verdict == "node_lost"
                assert resource_of(stack, dying)["status"]["verdict"] == "node_lost"
                until(lambda: lost not in sandbox_pods(stack), seconds=SOON)
                filled(stack, size=POOL)
                until(lambda: nodes_of_sandboxes(stack) == {survivor}, seconds=SOON)
                assert took < NODE_LOST + 40
        assert living.exec("echo kept", timeout=60).stdout == "kept\n"
    whole(stack, "gateway")
    whole(stack, "controller")


def test_a_cordoned_node_empties_and_its_sandbox_goes_on(stack: Stack, client: Client) -> None:
    filled(stack, size=POOL)
    box = warm(client)
    with box:
        pod = pod_of(stack, box)
        name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
        with cordoned(stack, node):
            until(lambda: sandboxes_on(stack, node) == {name}, seconds=SOON)
            assert box.exec("echo on", timeout=60).stdout == "on\n"
            # Others are warm on the other node, and what ends here is not used again.
            with warm(client) as other:
                assert pod_of(stack, other)["spec"]["nodeName"] != node
            box.delete()
            until(lambda: not sandboxes_on(stack, node), seconds=SOON)
    filled(stack, size=POOL)


def sandboxes_on(stack: Stack, node: str) -> set[str]:
    return {name for name, pod in sandbox_pods(stack).items() if pod["spec"].get("nodeName") == node}


def nodes_of_sandboxes(stack: Stack) -> set[str]:
    return {pod["spec"]["nodeName"] for pod in sandbox_pods(stack).values() if "nodeName" in pod["spec"]}


def ready_nodes(stack: Stack) -> set[str]:
    found = stack.get("nodes")["items"]
    return {
        node["metadata"]["name"]
        for node in found
        if any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"]["conditions"])
    }
