"""Caches of registries: off by default, one for each upstream, and only nodes and node agents reach them."""

from __future__ import annotations

import os
from typing import Any

import pytest
from sandlot_node import settings

from tests.chart.render import (
    NAMESPACE,
    SANDBOXES,
    Resource,
    environment,
    of_kind,
    one,
    refusal,
    render,
    selected,
)

AGENT = "sandlot-node-agent"
NODES = ["10.89.0.0/24"]


def on(**values: Any) -> dict[str, Any]:
    return {"nodeAgent": {"enabled": True}, "registryCache": {"enabled": True, "nodeCIDRs": NODES, **values}}


@pytest.fixture(scope="module")
def plain() -> list[Resource]:
    return render(on())


@pytest.fixture(params=["plain", "everything"])
def either(request: pytest.FixtureRequest) -> list[Resource]:
    return request.getfixturevalue(request.param)


def caches(resources: list[Resource]) -> list[Resource]:
    return [each for each in of_kind(resources, "Deployment") if "-cache-" in each["metadata"]["name"]]


def test_it_is_off_by_default() -> None:
    resources = render({"nodeAgent": {"enabled": True}})
    assert not [each for each in resources if "registry-cache" in each["source"]]
    assert "SANDLOT_MIRRORS" not in environment(one(resources, "DaemonSet", AGENT))
    assert "certs" not in str(one(resources, "DaemonSet", AGENT))


def test_a_cache_can_do_nothing_but_cache(either: list[Resource]) -> None:
    assert caches(either)
    for cache in caches(either):
        pod = cache["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert cache["metadata"]["namespace"] == NAMESPACE
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False, "REGISTRY_… variables of a Service would be settings"
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"]["memory"]
        assert {"startupProbe", "readinessProbe", "livenessProbe"} <= container.keys()
        assert {each["name"] for each in pod["volumes"]} == {
            each["name"] for each in container["volumeMounts"]
        }


def test_each_service_meets_its_own_cache_alone(everything: list[Resource]) -> None:
    pods = {
        each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"]
        for each in of_kind(everything, "Deployment")
    }
    for cache in caches(everything):
        name = cache["metadata"]["name"]
        service = one(everything, "Service", name)["spec"]
        assert selected(service["selector"], pods) == {name}
        assert selected(cache["spec"]["selector"]["matchLabels"], pods) == {name}
        assert service["type"] == "ClusterIP", "nothing outside of the cluster reaches it"


def test_a_cache_gets_a_node_with_room_for_its_volume(either: list[Resource]) -> None:
    for cache in caches(either):
        pod = cache["spec"]["template"]["spec"]
        (volume,) = [each["emptyDir"] for each in pod["volumes"] if "emptyDir" in each]
        requests = pod["containers"][0]["resources"]["requests"]
        assert requests.keys() == {"cpu", "memory", "ephemeral-storage"}
        assert volume["sizeLimit"] == requests["ephemeral-storage"]


def test_credentials_are_of_their_cache_alone(everything: list[Resource]) -> None:
    (container,) = one(everything, "Deployment", "sandlot-cache-hub")["spec"]["template"]["spec"][
        "containers"
    ]
    said = {
        each["name"]: each["valueFrom"]["secretKeyRef"] for each in container["env"] if "valueFrom" in each
    }
    assert said == {
        "REGISTRY_PROXY_USERNAME": {"name": "hub", "key": "username"},
        "REGISTRY_PROXY_PASSWORD": {"name": "hub", "key": "password"},
    }
    holders = [each["metadata"]["name"] for each in everything if "REGISTRY_PROXY_PASSWORD" in str(each)]
    assert holders == ["sandlot-cache-hub"]
    assert "'name': 'hub', 'key'" not in str(one(everything, "DaemonSet", AGENT)), "nothing of it on nodes"


def test_the_agent_has_each_cache_as_a_mirror(
    everything: list[Resource], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("SANDLOT_")]:
        monkeypatch.delenv(name)
    agent = one(everything, "DaemonSet", AGENT)
    for name, value in environment(agent).items():
        monkeypatch.setenv(name, value)
    loaded = settings.load()
    assert [(each.host, each.upstream) for each in loaded.mirrors] == [
        ("docker.io", "https://registry-1.docker.io"),
        ("registry.corp:5000", "http://registry.corp:5000"),
    ]
    for mirror in loaded.mirrors:
        name, namespace = mirror.cache.split(".")[:2]
        assert mirror.cache.endswith("."), "absolute: the pod's search domains are not asked first"
        (port,) = one(everything, "Service", name, namespace=namespace)["spec"]["ports"]
        assert port["port"] == mirror.port
    assert loaded.mirror_owner == f"{NAMESPACE}/sandlot"
    (container,) = agent["spec"]["template"]["spec"]["containers"]
    (mount,) = [each for each in container["volumeMounts"] if each["name"] == "certs"]
    assert mount["mountPath"] == str(loaded.certs)


def test_only_nodes_and_agents_reach_a_cache(either: list[Resource]) -> None:
    policy = one(either, "NetworkPolicy", "sandlot-registry-cache")["spec"]
    pods = [each["spec"]["template"]["metadata"]["labels"] for each in caches(either)]
    assert all(policy["podSelector"]["matchLabels"].items() <= labels.items() for labels in pods)
    (rule,) = policy["ingress"]
    assert [each["ipBlock"]["cidr"] for each in rule["from"] if "ipBlock" in each] == NODES
    (agents,) = [each for each in rule["from"] if "ipBlock" not in each]
    assert agents["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": SANDBOXES}
    assert agents["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "node-agent"


def test_a_cache_connects_to_ports_of_its_upstream(everything: list[Resource]) -> None:
    policy = one(everything, "NetworkPolicy", "sandlot-registry-cache")["spec"]
    dns, upstream = policy["egress"]
    assert {each["port"] for each in dns["ports"]} == {53}
    assert {each["port"] for each in upstream["ports"]} == {443, 5000, 8443}
    assert len(upstream["ports"]) == 3
    assert "169.254.0.0/16" in upstream["to"][0]["ipBlock"]["except"]


def test_no_cache_leaves_the_agent_to_remove_its_files() -> None:
    resources = render(on(upstreams=[], nodeCIDRs=[]))
    assert caches(resources) == []
    agent = one(resources, "DaemonSet", AGENT)
    assert environment(agent)["SANDLOT_MIRRORS"] == "[]"
    assert "'name': 'certs'" in str(agent)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"registryCache": {"enabled": True, "nodeCIDRs": NODES}}, "registryCache.enabled needs nodeAgent.enabled"),
        (on(nodeCIDRs=[]), "registryCache.nodeCIDRs is empty"),
        (on(nodeCIDRs=["0.0.0.0/0"]), "is every address"),
        (
            on(upstreams=[{"name": "a", "host": "a.example", "url": "https://a.example"}] * 2),
            "the name a or the host a.example is there twice",
        ),
        (on(upstreams=[{"name": "a", "host": "../x", "url": "https://a.example"}]), "upstreams"),
        (on(upstreams=[{"name": "a", "host": "a.example", "url": "https://u:p@a.example"}]), "upstreams"),
        (on(ttl="a week"), "ttl"),
    ],
)  # fmt: skip
def test_what_is_refused(values: dict[str, Any], said: str) -> None:
    assert said in refusal(values)
