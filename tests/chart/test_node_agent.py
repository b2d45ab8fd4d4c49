"""The node agent's DaemonSet: privileged, and so with as little as it needs; off unless it is asked for."""

from __future__ import annotations

import os
from typing import Any

import pytest
from sandlot_contract.ports import NODE_AGENT_PORT
from sandlot_node import settings

from tests.chart.render import SANDBOXES, Resource, environment, of_kind, one, render

NAME = "sandlot-node-agent"


def agent(resources: list[Resource]) -> Resource:
    return one(resources, "DaemonSet", NAME)


def pod(resources: list[Resource]) -> dict[str, Any]:
    return agent(resources)["spec"]["template"]["spec"]


@pytest.fixture(scope="module")
def plain() -> list[Resource]:
    return render({"nodeAgent": {"enabled": True}})


@pytest.fixture(params=["plain", "everything"])
def either(request: pytest.FixtureRequest) -> list[Resource]:
    return request.getfixturevalue(request.param)


def test_it_is_off_by_default(defaults: list[Resource]) -> None:
    assert not [each for each in defaults if "node-agent" in each["source"]]


def test_it_knows_nothing_of_the_api_server(either: list[Resource]) -> None:
    assert pod(either)["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in pod(either)
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod(either).keys()
    assert agent(either)["metadata"]["namespace"] == SANDBOXES, "the one that admits privileged pods"


def test_it_sees_only_these_directories_of_the_node(either: list[Resource], plain: list[Resource]) -> None:
    (container,) = pod(either)["containers"]
    assert container["securityContext"] == {
        "privileged": True,
        "runAsUser": 0,
        "readOnlyRootFilesystem": True,
    }
    volumes = {each["name"]: each for each in pod(either)["volumes"]}
    paths = {name: each["hostPath"]["path"] for name, each in volumes.items() if "hostPath" in each}
    wanted = {
        "run": "/run/containerd",
        "layers-0": "/var/lib/containerd",
        "images": "/var/lib/sandlot/images",
        "state": "/var/lib/sandlot/node-agent",
    }
    if either is not plain:
        wanted["layers-1"] = "/var/lib/containerd-stargz-grpc"
        wanted["certs"] = "/etc/containerd/certs.d"
    assert paths == wanted
    mounts = {each["name"]: each for each in container["volumeMounts"]}
    assert mounts.keys() == volumes.keys()
    for name, path in paths.items():
        assert mounts[name]["mountPath"] == path, "mounts and answers name the node's paths"
    for name in set(paths) - {"run", "images", "state", "certs"}:
        assert (mounts[name]["readOnly"], mounts[name]["mountPropagation"]) == (True, "HostToContainer")
    assert mounts["run"]["mountPropagation"] == "HostToContainer", (
        "mounts of pods that are gone must not stay here"
    )
    bidirectional = {name for name, each in mounts.items() if each.get("mountPropagation") == "Bidirectional"}
    assert bidirectional == {"images"}


def test_every_variable_is_a_setting_and_every_value_is_taken(
    either: list[Resource], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("SANDLOT_")]:
        monkeypatch.delenv(name)
    for name, value in environment(agent(either)).items():
        monkeypatch.setenv(name, value)
    loaded = settings.load()
    assert environment(agent(either)).keys() <= {
        f"SANDLOT_{name.upper()}" for name in settings.Settings.model_fields
    }
    assert str(loaded.images) == "/var/lib/sandlot/images"
    assert loaded.port == NODE_AGENT_PORT


def test_the_registries_are_the_gateways(everything: list[Resource]) -> None:
    gateway = environment(one(everything, "Deployment", "sandlot-gateway"))
    assert environment(agent(everything))["SANDLOT_REGISTRIES"] == gateway["SANDLOT_REGISTRIES"]
    assert environment(agent(everything))["SANDLOT_SNAPSHOTTER"] == "stargz"
    assert environment(agent(everything))["SANDLOT_RUNTIME_HANDLER"] == "lazy"


def test_probes_ask_a_port_that_there_is(either: list[Resource]) -> None:
    (container,) = pod(either)["containers"]
    assert container["ports"] == [{"name": "http", "containerPort": NODE_AGENT_PORT}]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"] == {"path": "/healthz", "port": "http"}


def test_the_token_is_where_the_settings_say(either: list[Resource]) -> None:
    file = environment(agent(either))["SANDLOT_TOKEN_FILE"]
    (container,) = pod(either)["containers"]
    mount = next(each for each in container["volumeMounts"] if each["mountPath"] == file.rpartition("/")[0])
    volume = next(each for each in pod(either)["volumes"] if each["name"] == mount["name"])
    secret = one(either, "Secret", volume["secret"]["secretName"], namespace=SANDBOXES)
    assert list(secret["data"]) == [file.rpartition("/")[2]]
    assert mount["readOnly"] is True


def test_a_token_of_the_users_own() -> None:
    resources = render({"nodeAgent": {"enabled": True, "existingTokenSecret": "mine"}})
    assert NAME not in [each["metadata"]["name"] for each in of_kind(resources, "Secret")]
    assert "'secretName': 'mine'" in str(pod(resources))


def test_images_of_its_own_registry(everything: list[Resource]) -> None:
    (container,) = pod(everything)["containers"]
    assert container["image"] == "registry.example/sandlot/node-agent:v9"
    assert pod(everything)["imagePullSecrets"] == [{"name": "images"}]
