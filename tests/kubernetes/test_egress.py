"""What a running sandbox may reach, changed in its pod: asked of the cluster's name server, which every sandbox reaches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from sandlot import Client, Sandbox

from tests.kubernetes.attacks import CONNECT
from tests.kubernetes.boxes import pod_of, pods_exec, warm
from tests.kubernetes.stack import Stack

EVERYTHING = {"allowlist": None, "denylist": []}


class Policy:
    """The routes of one sandbox's policy, each call on a connection of its own: to whichever gateway."""

    def __init__(self, stack: Stack, box: Sandbox) -> None:
        self._path = f"{stack.url}/api/v1/sandbox/{box.id}/egress-policy"
        self._headers = {"Authorization": f"Bearer {stack.api_key}"}

    def get(self) -> dict[str, Any]:
        return httpx.get(self._path, headers=self._headers, timeout=60).json()

    def put(self, *, allow: list[str] | None = None, deny: list[str] | None = None) -> httpx.Response:
        body = {"allowlist": allow, "denylist": deny}
        return httpx.put(self._path, headers=self._headers, json=body, timeout=60)


@pytest.fixture
def box(client: Client) -> Iterator[Sandbox]:
    with warm(client) as made:
        yield made


@pytest.fixture
def server(stack: Stack) -> str:
    """The name server's address."""
    return stack.get("service", "kube-dns", "-n", "kube-system")["spec"]["clusterIP"]


def question(server: str) -> list[str]:
    return ["python3", "-c", CONNECT, json.dumps({"dns": (server, 53)})]


def reached(box: Sandbox, server: str) -> bool:
    return json.loads(box.exec(question(server), timeout=60, check=True).stdout)["dns"]


@pytest.mark.parametrize("stack", ["runc"], indirect=True)
def test_under_runc_it_holds_when_it_is_answered(stack: Stack, box: Sandbox, server: str) -> None:
    policy = Policy(stack, box)
    assert reached(box, server)
    for lists, canonical, still in (
        ({"deny": [f"{server}:53"]}, {"allowlist": None, "denylist": [f"{server}/32:53"]}, False),
        ({"deny": [f"{server}:54"]}, {"allowlist": None, "denylist": [f"{server}/32:54"]}, True),
        ({"allow": []}, {"allowlist": [], "denylist": None}, False),
        ({"allow": [server]}, {"allowlist": [f"{server}/32"], "denylist": None}, True),
        ({"allow": ["192.0.2.0/24"]}, {"allowlist": ["192.0.2.0/24"], "denylist": None}, False),
    ):
        told = policy.put(**lists).json()
        assert (told["policy"], told["applied"]) == (canonical, True), told
        assert reached(box, server) is still
        # Any gateway tells it: the sidecar has it.
        assert [policy.get() for _ in range(6)] == [told] * 6
    pod = pod_of(stack, box)["metadata"]["name"]
    assert json.loads(pods_exec(stack, pod, question(server))) == {"dns": True}, "of the sandbox alone"
    assert policy.put(deny=[]).json()["generation"] == 7
    assert reached(box, server)


@pytest.mark.parametrize("stack", ["gvisor"], indirect=True)
def test_under_gvisor_a_change_is_refused_and_nothing_changes(
    stack: Stack, box: Sandbox, server: str
) -> None:
    policy = Policy(stack, box)
    refused = policy.put(allow=[])
    assert (refused.status_code, refused.json()["errors"][0]["param"]) == (422, "allowlist")
    assert "gVisor has none" in refused.json()["detail"]
    assert policy.get() == {
        "policy": EVERYTHING,
        "generation": 1,
        "applied_generation": 1,
        "applied": True,
    }
    assert reached(box, server)
