"""The node agent in the cluster: what it prepares is seen by pods that run already, and outlives it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.cluster import cluster
from tests.cluster.config import REGISTRY_HOST
from tests.cluster.paths import IMAGES
from tests.kubernetes.killing import own_cluster_only
from tests.kubernetes.node_agents import DIRECTORY, PROGRAM, Agent, digest_in
from tests.kubernetes.releases import SMALL, release_of_its_own
from tests.kubernetes.stack import IMAGE, Stack
from tests.waiting import wait_until

REACH = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=3).close()
    print("reached")
except OSError as error:
    print(error or type(error).__name__)
"""
SLOT = {"test": "slot"}  # label of the pods that a test plays slots with


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    own_cluster_only()
    with release_of_its_own("images", runtime="gvisor") as made:
        values = {
            "nodeAgent": {"enabled": True, "config": {"minFree": 0, "useGrace": 1, "housekeeping": 1}},
            "gateway.config.registries": [REGISTRY_HOST],
        }
        more = ",".join(f"{name}={json.dumps(value)}" for name, value in values.items())
        made.install(*SMALL, "--set-json", more)
        yield made


@pytest.fixture(scope="module")
def agent(stack: Stack) -> Agent:
    nodes = stack.get("nodes", "-l", "!node-role.kubernetes.io/control-plane")["items"]
    return Agent(stack, nodes[0]["metadata"]["name"])


@pytest.fixture
def slots(agent: Agent) -> Iterator[dict[str, str]]:
    """Two pods that run before any image is prepared, by their runtimes; they see the images' directory."""
    names = {"runc": "slot-runc", "gvisor": "slot-gvisor"}
    namespace = agent.stack.sandboxes
    for runtime, name in names.items():
        spec = {
            "nodeName": agent.node,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "containers": [
                {
                    "name": "slot",
                    "image": IMAGE,
                    "imagePullPolicy": "Never",
                    "command": ["sleep", "3600"],
                    "volumeMounts": [
                        {
                            "name": "images",
                            "mountPath": DIRECTORY,
                            "readOnly": True,
                            "mountPropagation": "HostToContainer",
                        }
                    ],
                }
            ],
            "volumes": [{"name": "images", "hostPath": {"path": DIRECTORY, "type": "Directory"}}],
        }
        if runtime == "gvisor":
            spec["runtimeClassName"] = "gvisor"
        metadata = {"name": name, "namespace": namespace, "labels": SLOT}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        agent.stack.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    try:
        for name in names.values():
            agent.stack.kubectl(
                "wait", f"pod/{name}", "-n", namespace, "--for=condition=Ready", "--timeout=240s"
            )
        yield names
    finally:
        agent.stack.kubectl("delete", "pod", *names.values(), "-n", namespace, "--ignore-not-found", "--wait")


@pytest.fixture(scope="module")
def archive() -> Path:
    return IMAGES / "archives" / "python.tar"


@pytest.fixture(scope="module")
def reference(archive: Path) -> str:
    return cluster.push_image(archive)


def run_in(agent: Agent, pod: str, *words: str) -> str:
    return agent.stack.kubectl("exec", "-n", agent.stack.sandboxes, pod, "--", *words)


def test_what_is_prepared_is_seen_by_running_pods_and_outlives_the_agent(
    agent: Agent, slots: dict[str, str], archive: Path, reference: str
) -> None:
    image = agent.prepare(reference)
    rootfs = image["rootfs"]
    assert rootfs.startswith(f"{DIRECTORY}/{image['id'].replace(':', '-')}.")
    wanted = digest_in(archive, PROGRAM)
    for name in slots.values():
        path = f"/v1/images/{image['id']}/uses"
        assert agent.call("POST", path, {"slot": name})[0] == 200
        assert run_in(agent, name, "sha256sum", f"{rootfs}/{PROGRAM}").split()[0] == wanted
        said = run_in(agent, name, "sh", "-c", f"echo x > {shlex.quote(rootfs)}/new || echo refused")
        assert said.strip() == "refused"
        assert json.loads(run_in(agent, name, "cat", f"{rootfs}/../image.json"))["id"] == image["id"]
    assert agent.call("DELETE", f"/v1/images/{image['id']}")[0] == 409

    before = agent.pod()["metadata"]["uid"]
    name = agent.pod()["metadata"]["name"]
    agent.stack.kubectl("delete", "pod", name, "-n", agent.stack.sandboxes, "--grace-period=0", "--force")
    wait_until(lambda: agent.pod()["metadata"]["uid"] != before, seconds=120, pause=0.5)
    status, again = agent.call("GET", f"/v1/images/{image['id']}")
    assert (status, again["rootfs"], again["uses"]) == (200, rootfs, sorted(slots.values()))
    for name in slots.values():
        assert run_in(agent, name, "sha256sum", f"{rootfs}/{PROGRAM}").split()[0] == wanted

    for name in slots.values():
        agent.stack.kubectl("delete", "pod", name, "-n", agent.stack.sandboxes, "--wait")
    gone = lambda: agent.call("GET", f"/v1/images/{image['id']}")[1]["uses"] == []  # noqa: E731
    wait_until(gone, seconds=180, pause=0.5, what="the uses of pods that are gone are dropped")
    assert agent.call("DELETE", f"/v1/images/{image['id']}")[0] == 204
    assert agent.call("GET", f"/v1/images/{image['id']}")[0] == 404


@pytest.fixture
def open_slots(agent: Agent, slots: dict[str, str]) -> Iterator[dict[str, str]]:
    """The same pods with all ways out open: what they do not reach is closed at its own side."""
    spec = {"podSelector": {"matchLabels": SLOT}, "policyTypes": ["Egress"], "egress": [{}]}
    metadata = {"name": "open-slots", "namespace": agent.stack.sandboxes}
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata,
        "spec": spec,
    }
    agent.stack.kubectl("apply", "-f", "-", stdin=json.dumps(policy))
    try:
        yield slots
    finally:
        agent.stack.kubectl(
            "delete", "networkpolicy", metadata["name"], "-n", metadata["namespace"], "--ignore-not-found"
        )


def reach(agent: Agent, pod: str, address: str, port: int) -> str:
    """Return `reached`, or why the pod did not reach it."""
    return run_in(agent, pod, "python3", "-c", REACH, address, str(port)).strip()


def test_no_pod_beside_the_sandboxes_reaches_the_agent(agent: Agent, open_slots: dict[str, str]) -> None:
    stack = agent.stack
    address = agent.pod()["status"]["podIP"]
    chosen = ("-l", "app.kubernetes.io/component=gateway", "-n", stack.namespace)
    gateway = stack.get("pods", *chosen)["items"][0]["status"]["podIP"]

    def reaches_the_gateway(pod: str) -> bool:
        return reach(agent, pod, gateway, 8642) == "reached"

    for name in open_slots.values():
        wait_until(partial(reaches_the_gateway, name), pause=0.5, what=f"the ways out of {name} are open")
        said = reach(agent, name, address, 8660)
        assert "timed out" in said or "refused" in said, said
    assert agent.call("GET", "/v1/usage")[0] == 200


def test_failures_come_with_their_reason(agent: Agent) -> None:
    status, error = agent.call("POST", "/v1/images?wait=30", {"image": f"{REGISTRY_HOST}/nowhere:1"})
    assert (status, error["code"]) == (404, "not_found")
    status, error = agent.call("POST", "/v1/images", {"image": "docker.io/library/python:3"})
    assert (status, error["code"]) == (403, "not_allowed")
    assert REGISTRY_HOST in error["detail"]
