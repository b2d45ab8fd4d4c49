"""How kubelets' figures are added up: by part, over pods that end and containers that start again."""

from __future__ import annotations

from typing import Any

import msgspec

from loadtests.load.kubelet import Account, NodeStats


def container(name: str, *, cpu: float, memory: int = 10) -> dict[str, Any]:
    return {
        "name": name,
        "cpu": {"usageCoreNanoSeconds": int(cpu * 1e9)},
        "memory": {"workingSetBytes": memory},
    }


def node(*pods: dict[str, Any]) -> NodeStats:
    return msgspec.convert({"node": {"nodeName": "n"}, "pods": list(pods)}, NodeStats)


def pod(name: str, namespace: str, *containers: dict[str, Any], **whole: Any) -> dict[str, Any]:
    return {
        "podRef": {"name": name, "namespace": namespace, "uid": name},
        "containers": list(containers),
        **whole,
    }


def test_containers_count_by_what_they_are_and_where() -> None:
    account = Account(parts="system", sandboxes="boxes")
    first = node(
        pod("g", "system", container("gateway", cpu=5, memory=100)),
        pod("a", "boxes", container("sidecar", cpu=1), container("sandbox", cpu=2, memory=30)),
        pod("api", "kube-system", container("kube-apiserver", cpu=100), container("other", cpu=7)),
        pod("x", "elsewhere", container("gateway", cpu=50)),
    )
    found = account.add([first])
    assert set(found) == {"gateway", "sidecars", "sandboxes", "kube-apiserver"}
    assert {part: usage.cpu for part, usage in found.items()} == dict.fromkeys(found, 0.0)
    assert (found["gateway"].memory, found["sandboxes"].memory) == (100, 30)
    second = node(
        pod("g", "system", container("gateway", cpu=6)),
        pod("g2", "system", container("gateway", cpu=2)),  # began meanwhile: all of its CPU is the run's
    )
    found = account.add([second])
    assert (found["gateway"].cpu, found["gateway"].processes) == (3.0, 2)
    third = node(pod("g2", "system", container("gateway", cpu=0.5)))  # started again; the other one is gone
    assert account.add([third])["gateway"].cpu == 3.5


def test_bare_pods_are_a_part_of_their_own() -> None:
    account = Account(parts="system", sandboxes="boxes")
    bare = container("sidecar", cpu=1), container("sandbox", cpu=2)
    looks = [
        node(pod("bare-0", "system", *bare), pod("bare-1", "system", cpu={"usageCoreNanoSeconds": int(3e9)})),
        node(pod("bare-0", "system", *bare), pod("bare-1", "system", cpu={"usageCoreNanoSeconds": int(5e9)})),
    ]
    assert account.add(looks[:1])["bare"].processes == 3
    assert {part: usage.cpu for part, usage in account.add(looks[1:]).items()} == {"bare": 2.0}


def test_a_runtime_with_one_account_for_the_pod_is_told_as_a_whole() -> None:
    account = Account(parts="system", sandboxes="boxes")
    whole = {"cpu": {"usageCoreNanoSeconds": 3_000_000_000}, "memory": {"workingSetBytes": 70}}
    found = account.add([node(pod("a", "boxes", {"name": "sandbox"}, {"name": "sidecar"}, **whole))])
    assert found["sandboxes"].memory == 70
    whole["cpu"] = {"usageCoreNanoSeconds": 4_000_000_000}
    assert account.add([node(pod("a", "boxes", **whole))])["sandboxes"].cpu == 1.0


def test_numbers_that_a_kubelet_does_not_have_yet_are_left_out() -> None:
    account = Account(parts="system", sandboxes="boxes")
    assert account.add([node(pod("a", "boxes", {"name": "sidecar"})), NodeStats()]) == {}
