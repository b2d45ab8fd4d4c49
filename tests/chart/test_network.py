"""The walls between pods, by what Kubernetes makes of the policies: who may open a connection to whom."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from sandlot_controller.plan import pod
from sandlot_controller.settings import Settings
from sandlot_kube.objects import Metadata, SandboxPool, SandboxPoolSpec
from sandlot_kube.template import Template

from tests.chart.render import ALL, NAMESPACE, SANDBOXES, Resource, of_kind, one, render


@dataclass(frozen=True)
class Peer:
    """A pod of the cluster, or, without a namespace, an address outside of it."""

    ip: str
    namespace: str | None = None
    labels: tuple[tuple[str, str], ...] = ()


@pytest.fixture
def peers(resources: list[Resource]) -> dict[str, Peer]:
    """The sandboxes as the controller makes them, the others as the chart does."""
    settings = Settings(namespace=SANDBOXES, key_file="/k", webhook_url="http://g", sidecar_image="s")  # pyright: ignore[reportArgumentType]
    spec = SandboxPoolSpec(template=Template(image="python:3.12"), size=1)
    pool = SandboxPool(metadata=Metadata(name="default"), spec=spec)
    boxes = [pod.pool_pod(pool, instance_id=f"i-{n:016x}", token="t", settings=settings) for n in (1, 2)]
    found = {
        f"sandbox-{n}": Peer(f"10.0.1.{n}", SANDBOXES, tuple(box["metadata"]["labels"].items()))
        for n, box in enumerate(boxes)
    }
    for n, component in enumerate(("gateway", "controller")):
        labels = one(resources, "Deployment", f"sandlot-{component}")["spec"]["template"]["metadata"][
            "labels"
        ]
        found[component] = Peer(f"10.0.2.{n}", NAMESPACE, tuple(labels.items()))
    found["dns"] = Peer("10.0.3.1", "kube-system", (("k8s-app", "kube-dns"),))
    found["other"] = Peer("10.0.3.2", "kube-system", (("k8s-app", "other"),))
    found["imposter"] = Peer("10.0.4.1", "elsewhere", found["gateway"].labels)
    found["same namespace"] = Peer("10.0.4.2", NAMESPACE, (("app", "web"),))
    found["api server"] = Peer("203.0.113.7")
    found["internet"] = Peer("8.8.8.8")
    found["pypi"] = Peer("151.101.0.223")
    return found


def test_only_gateway_and_controller_reach_a_sidecar(
    resources: list[Resource], peers: dict[str, Peer]
) -> None:
    box = peers["sandbox-0"]
    welcome = {name for name, peer in peers.items() if _may(resources, peer, box, 8700)} - {"sandbox-0"}
    assert welcome == {"gateway", "controller"}
    for port in (22, 80, 8701):
        assert not any(_may(resources, peer, box, port) for peer in peers.values())


def test_what_a_sandbox_reaches_by_default(defaults: list[Resource], peers: dict[str, Peer]) -> None:
    box = peers["sandbox-0"]
    for port, protocol, reached in (
        (8641, "TCP", {"gateway"}),
        (8642, "TCP", set()),
        (8643, "TCP", set()),
        (53, "UDP", {"dns"}),
        (53, "TCP", {"dns"}),
        (443, "TCP", set()),
        (6443, "TCP", set()),
        (8080, "TCP", set()),
        (8700, "TCP", set()),
    ):
        assert {n for n, peer in peers.items() if _may(defaults, box, peer, port, protocol)} == reached, port


def test_what_a_sandbox_reaches_with_all_rules_on(everything: list[Resource], peers: dict[str, Peer]) -> None:
    box = peers["sandbox-0"]
    assert {n for n, peer in peers.items() if _may(everything, box, peer, 443)} == {"internet", "pypi"}
    assert {n for n, peer in peers.items() if _may(everything, box, peer, 8641)} == {
        "gateway",
        "internet",
        "pypi",
    }
    assert {n for n, peer in peers.items() if _may(everything, box, peer, 8642)} == {"internet", "pypi"}
    assert {n for n, peer in peers.items() if _may(everything, box, peer, 80)} == {"internet", "pypi"}
    assert _may(everything, box, Peer("10.1.2.9"), 8443)
    assert not _may(everything, box, Peer("10.1.2.9"), 22)
    assert not _may(everything, box, Peer("10.1.3.9"), 443)
    assert _may(everything, box, Peer("192.168.7.1"), 12345)


@pytest.mark.parametrize(
    "address",
    [
        *(
            "169.254.169.254",
            "169.254.170.2",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "fd00:ec2::254",
        ),
        *("10.96.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "127.0.0.1", "0.0.0.0", "240.0.0.1"),
    ],
)
def test_no_rule_opens_metadata_or_the_cluster_s_own_addresses(
    address: str, resources: list[Resource], peers: dict[str, Peer]
) -> None:
    assert not any(_may(resources, peers["sandbox-0"], Peer(address), port) for port in (80, 443, 6443, 8700))


def test_each_rule_opens_what_its_name_says(peers: dict[str, Peer]) -> None:
    box = peers["sandbox-0"]
    pypi = render({"networkPolicy": {"egress": {"pypi": True}}})
    assert {n for n, peer in peers.items() if _may(pypi, box, peer, 443)} == {"pypi"}
    assert not _may(pypi, box, peers["pypi"], 80)
    internet = render({"networkPolicy": {"egress": {"internet": True}}})
    assert {n for n, peer in peers.items() if _may(internet, box, peer, 80)} == {
        "internet",
        "pypi",
        "api server",
    }
    silent = render({"networkPolicy": {"dns": {"enabled": False}}})
    assert not _may(silent, box, peers["dns"], 53, "UDP")


def test_a_pod_without_our_labels_is_walled_in_too(
    everything: list[Resource], peers: dict[str, Peer]
) -> None:
    stray = Peer("10.0.1.9", SANDBOXES, (("app", "stray"),))
    for peer in peers.values():
        for port in (53, 443, 8641, 8642, 8700):
            assert not _may(everything, stray, peer, port)
            assert not _may(everything, peer, stray, port)


def test_who_reaches_the_gateway(peers: dict[str, Peer], defaults: list[Resource]) -> None:
    gateway = peers["gateway"]
    others = [peer for peer in peers.values() if peer is not gateway]
    boxes = {"sandbox-0", "sandbox-1"}
    assert {n for n, peer in peers.items() if not _may(defaults, peer, gateway, 8642)} == boxes
    assert {n for n, peer in peers.items() if _may(defaults, peer, gateway, 8641)} == boxes
    assert not any(_may(defaults, peer, gateway, port) for peer in others for port in (8622, 8643))
    chosen = render({"networkPolicy": {"clients": [{"podSelector": {"matchLabels": {"app": "web"}}}]}})
    welcome = {n for n, peer in peers.items() if _may(chosen, peer, gateway, 8642)}
    assert welcome == {"same namespace", "gateway"}
    assert {n for n, peer in peers.items() if _may(chosen, peer, gateway, 8641)} == boxes


@pytest.mark.parametrize(
    ("door", "port"),
    [({"tls": {"existingSecret": "certificate"}}, 8643), ({"ssh": {"port": 22}}, 8622)],
    ids=["https", "ssh"],
)
def test_who_comes_by_another_door_is_a_client(
    peers: dict[str, Peer], door: dict[str, Any], port: int
) -> None:
    gateway = peers["gateway"]
    assert _may(render({"gateway": door}), peers["other"], gateway, port)
    clients = [{"podSelector": {"matchLabels": {"app": "web"}}}]
    chosen = render({"gateway": door, "networkPolicy": {"clients": clients}})
    assert {n for n, peer in peers.items() if _may(chosen, peer, gateway, port)} == {"same namespace"}


def test_the_controller_only_shows_its_health(defaults: list[Resource], peers: dict[str, Peer]) -> None:
    controller = peers["controller"]
    assert _may(defaults, peers["other"], controller, 8080)
    assert not _may(defaults, peers["other"], controller, 8642)
    assert not _may(defaults, peers["sandbox-0"], controller, 8080)


def test_no_rule_of_sandboxes_opens_the_controller_s_metrics(peers: dict[str, Peer]) -> None:
    """A custom rule may hold the cluster's own addresses: the controller's side closes them, too."""
    wide = {"custom": [{"name": "wide", "cidrs": ["10.0.0.0/8"]}]}
    opened = render({"networkPolicy": {"egress": wide}})
    box = peers["sandbox-0"]
    assert _may(opened, box, Peer("10.9.9.9"), 8080)
    assert {n for n, peer in peers.items() if not _may(opened, peer, peers["controller"], 8080)} == {
        *("sandbox-0", "sandbox-1", "api server", "internet", "pypi"),
    }


def test_no_sandbox_reaches_a_node_agent(everything: list[Resource], peers: dict[str, Peer]) -> None:
    """Even where a rule of the sandboxes holds the cluster's own addresses."""
    wide = {"custom": [{"name": "wide", "cidrs": ["10.0.0.0/8"]}]}
    opened = render({"nodeAgent": {"enabled": True}, "networkPolicy": {"egress": wide}})
    labels = one(opened, "DaemonSet", "sandlot-node-agent")["spec"]["template"]["metadata"]["labels"]
    agent = Peer("10.0.2.9", SANDBOXES, tuple(labels.items()))
    for resources in (everything, opened):
        assert all(_may(resources, peers[each], agent, 8660) for each in ("gateway", "controller"))
        assert not any(_may(resources, peers[box], agent, 8660) for box in ("sandbox-0", "sandbox-1"))
        assert not _may(resources, peers["gateway"], agent, 22)
        assert not any(_may(resources, agent, peer, 443) for peer in peers.values()), "it connects to nothing"


def test_without_policies_there_are_none() -> None:
    assert of_kind(render(ALL | {"networkPolicy": {"enabled": False}}), "NetworkPolicy") == []


# What Kubernetes says of NetworkPolicies: https://kubernetes.io/docs/concepts/services-networking/network-policies/


def _may(resources: list[Resource], source: Peer, target: Peer, port: int, protocol: str = "TCP") -> bool:
    policies = of_kind(resources, "NetworkPolicy")
    return _side(policies, "Egress", source, target, port, protocol) and _side(
        policies, "Ingress", target, source, port, protocol
    )


def _side(policies: list[Resource], direction: str, pod: Peer, other: Peer, port: int, protocol: str) -> bool:
    """A pod that no policy of this direction selects is open; else one rule must allow it."""
    mine = [
        each["spec"]
        for each in policies
        if each["metadata"]["namespace"] == pod.namespace
        and direction in each["spec"]["policyTypes"]
        and _selects(each["spec"]["podSelector"], pod.labels)
    ]
    ends = "to" if direction == "Egress" else "from"
    return not mine or any(
        _port(rule, port, protocol)
        and (not rule.get(ends) or any(_matches(end, other, pod) for end in rule[ends]))
        for spec in mine
        for rule in spec.get(direction.lower(), [])
    )


def _port(rule: dict[str, Any], port: int, protocol: str) -> bool:
    ports = rule.get("ports")
    return not ports or any(
        each["port"] == port and each.get("protocol", "TCP") == protocol for each in ports
    )


def _matches(end: dict[str, Any], other: Peer, pod: Peer) -> bool:
    if block := end.get("ipBlock"):
        # A block is for what is outside; but nothing in Kubernetes keeps it from holding pods.
        address = ip_address(other.ip)
        inside = address in ip_network(block["cidr"])
        return inside and not any(address in ip_network(hole) for hole in block.get("except", []))
    if other.namespace is None:
        return False
    if "namespaceSelector" in end:
        names = (("kubernetes.io/metadata.name", other.namespace),)
        if not _selects(end["namespaceSelector"], names):
            return False
    elif other.namespace != pod.namespace:
        return False
    return _selects(end.get("podSelector", {}), other.labels)


def _selects(selector: dict[str, Any], labels: tuple[tuple[str, str], ...]) -> bool:
    assert selector.keys() <= {"matchLabels", "matchExpressions"}
    its = dict(labels)
    for each in selector.get("matchExpressions", []):
        assert each["operator"] == "NotIn"
        if its.get(each["key"]) in each["values"]:
            return False
    return selector.get("matchLabels", {}).items() <= its.items()
