"""On the cluster: gVisor runs, policies hold between pods of both runtimes, components die and come back."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.cluster import cluster, faults
from tests.cluster.engine import Engine
from tests.cluster.paths import IMAGES
from tests.cluster.shell import ClusterError, CommandFailed

pytestmark = [pytest.mark.cluster, pytest.mark.whole_cluster, pytest.mark.slow, pytest.mark.timeout(900)]

CONNECT = "import socket,sys; socket.create_connection((sys.argv[1], 8700), timeout=8)"


def pod(name: str, *, image: str, node: str, gvisor: bool) -> dict[str, Any]:
    """A pod that serves HTTP on 8700."""
    spec: dict[str, Any] = {
        "nodeName": node,
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "containers": [
            {
                "name": "main",
                "image": image,
                "command": ["python3", "-m", "http.server", "8700"],
                # A container runs before its program listens.
                "readinessProbe": {"tcpSocket": {"port": 8700}, "periodSeconds": 1},
            },
        ],
    }
    if gvisor:
        spec["runtimeClassName"] = "gvisor"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": spec,
    }


def apply(engine: Engine, namespace: str, *documents: dict[str, Any]) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(documents)})
    cluster.kubectl(engine, "apply", "-n", namespace, "-f", "-", stdin=text)


def connects(engine: Engine, namespace: str, *, source: str, address: str) -> bool:
    try:
        cluster.kubectl(engine, "exec", "-n", namespace, source, "--", "python3", "-c", CONNECT, address)
    except CommandFailed as error:
        assert "timed out" in error.output
        return False
    return True


def reached(
    engine: Engine, namespace: str, *, sources: tuple[str, ...], servers: list[str]
) -> dict[str, list[bool]]:
    """For each source, which servers it connects to. All ask at the same time: a policy's refusals take 8 s each."""
    with ThreadPoolExecutor(len(sources) * len(servers)) as threads:
        answers = {
            source: [
                threads.submit(connects, engine, namespace, source=source, address=server)
                for server in servers
            ]
            for source in sources
        }
        return {source: [one.result() for one in each] for source, each in answers.items()}


def address_of(engine: Engine, namespace: str, name: str) -> str:
    return cluster.kubectl(engine, "get", "pod", "-n", namespace, name, "-o", "jsonpath={.status.podIP}")


def test_policies_hold_between_nodes_and_runtimes(engine: Engine, namespace: str, python_image: str) -> None:
    first, *_, last = [name for name in cluster.nodes(engine) if "worker" in name]
    for name, node, gvisor in (
        ("server", first, False),
        ("gserver", first, True),
        ("friend", last, False),
        ("stranger", last, False),
        ("gfriend", first, True),
        ("gstranger", first, True),
    ):
        apply(engine, namespace, pod(name, image=python_image, node=node, gvisor=gvisor))
    cluster.kubectl(
        engine, "wait", "pod", "--all", "-n", namespace, "--for=condition=Ready", "--timeout=240s"
    )
    servers = [address_of(engine, namespace, name) for name in ("server", "gserver")]
    for source in ("stranger", "gstranger"):
        assert [connects(engine, namespace, source=source, address=server) for server in servers] == [
            True,
            True,
        ]
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "friends"},
        "spec": {
            "podSelector": {
                "matchExpressions": [{"key": "app", "operator": "In", "values": ["server", "gserver"]}]
            },
            "policyTypes": ["Ingress"],
            "ingress": [
                {
                    "from": [
                        {
                            "podSelector": {
                                "matchExpressions": [
                                    {"key": "app", "operator": "In", "values": ["friend", "gfriend"]}
                                ]
                            }
                        }
                    ]
                }
            ],
        },
    }
    apply(engine, namespace, policy)
    strangers = ("stranger", "gstranger")
    cluster.wait_for(
        lambda: not any(map(any, reached(engine, namespace, sources=strangers, servers=servers).values())),
        what="the policy is enforced",
        seconds=120,
    )
    everyone = ("friend", "stranger", "gfriend", "gstranger")
    assert reached(engine, namespace, sources=everyone, servers=servers) == {
        "friend": [True, True],
        "stranger": [False, False],
        "gfriend": [True, True],
        "gstranger": [False, False],
    }


def test_pods_pull_what_was_pushed_to_the_registry(engine: Engine, namespace: str, python_image: str) -> None:
    reference = cluster.push_image(IMAGES / "archives" / "python.tar")
    worker = next(name for name in cluster.nodes(engine) if "worker" in name)
    wanted = pod("puller", image=reference, node=worker, gvisor=False)
    wanted["spec"]["containers"][0]["imagePullPolicy"] = "Always"
    apply(engine, namespace, wanted)
    cluster.kubectl(engine, "wait", "pod/puller", "-n", namespace, "--for=condition=Ready", "--timeout=240s")


def test_a_container_that_is_killed_starts_again(engine: Engine, namespace: str, python_image: str) -> None:
    worker = next(name for name in cluster.nodes(engine) if "worker" in name)
    apply(engine, namespace, pod("victim", image=python_image, node=worker, gvisor=True))
    cluster.kubectl(engine, "wait", "pod/victim", "-n", namespace, "--for=condition=Ready", "--timeout=240s")
    faults.kill(component="container", target=f"{namespace}/victim/main")
    path = "jsonpath={.status.containerStatuses[0].restartCount}"
    cluster.wait_for(
        lambda: cluster.kubectl(engine, "get", "pod/victim", "-n", namespace, "-o", path) == "1",
        what="the container was started again",
        seconds=120,
    )


def test_the_api_server_dies_stays_away_and_comes_back(engine: Engine) -> None:
    faults.kill(component="apiserver", target=None)
    try:
        with pytest.raises(ClusterError):
            cluster.kubectl(engine, "get", "--raw", "/readyz", timeout=10)
    finally:
        faults.heal(component="apiserver", target=None)
    assert cluster.kubectl(engine, "get", "--raw", "/readyz") == "ok"


def test_a_fault_needs_a_target_that_is_there(engine: Engine) -> None:
    with pytest.raises(ClusterError, match="a node's name is needed"):
        faults.kill(component="node", target="nonsense")
    with pytest.raises(ClusterError, match="NAMESPACE/POD/CONTAINER"):
        faults.kill(component="container", target="nonsense")
