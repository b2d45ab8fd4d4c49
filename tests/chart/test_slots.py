"""Slots switched on: where the images' directory and the agents' token go, and where they do not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sandlot_contract.names import ANNOTATION_LAYS_IMAGES

from tests.chart.release import Release
from tests.chart.render import (
    CONTROLLER,
    GATEWAY,
    NAMESPACE,
    SANDBOXES,
    VERSION,
    Resource,
    environment,
    of_kind,
    one,
    render,
)
from tests.chart.test_sandbox_pods import PYTHON, built

IMAGES = "/var/lib/sandlot/images"
SLOTS: dict[str, Any] = {"nodeAgent": {"enabled": True}, "slots": {"enabled": True}}
TOKEN = "sandlot-node-agent"


@pytest.fixture(scope="module")
def slots() -> list[Resource]:
    return render(SLOTS)


def config_of(sidecar: dict[str, Any]) -> dict[str, Any]:
    return json.loads(next(each["value"] for each in sidecar["env"] if "CONFIG" in each["name"]))


def token_secrets(resources: list[Resource]) -> dict[str, dict[str, str]]:
    """Their data, by namespace."""
    secrets = of_kind(resources, "Secret")
    return {
        each["metadata"]["namespace"]: each["data"] for each in secrets if each["metadata"]["name"] == TOKEN
    }


def test_only_the_sidecar_sees_the_images_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    pod = built({**SLOTS, "nodeAgent": {"enabled": True, "directory": "/data/sandlot"}}, monkeypatch)
    sandbox, sidecar = pod["spec"]["containers"]
    images = "/data/sandlot/images"
    assert config_of(sidecar)["root"]["images"] == images
    [mount] = [each for each in sidecar["volumeMounts"] if each["mountPath"] == images]
    assert (mount["readOnly"], mount["mountPropagation"]) == (True, "HostToContainer")
    [volume] = [each for each in pod["spec"]["volumes"] if each["name"] == mount["name"]]
    assert volume["hostPath"] == {"path": images, "type": "DirectoryOrCreate"}
    assert [each["name"] for each in sandbox["volumeMounts"]] == ["holder"]
    assert pod["metadata"]["annotations"][ANNOTATION_LAYS_IMAGES] == "true"


def test_pods_without_slots_keep_their_image(monkeypatch: pytest.MonkeyPatch) -> None:
    pod = built({"nodeAgent": {"enabled": True}}, monkeypatch)
    assert "images" not in config_of(pod["spec"]["containers"][1])["root"]
    assert ANNOTATION_LAYS_IMAGES not in pod["metadata"]["annotations"]
    assert IMAGES not in str(pod)


def test_a_pool_without_an_image_starts_with_the_sidecars(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = {"size": 1, "template": {"cpu": 2}}
    ours = {"registry": "r.example", "pullPolicy": "Never"}
    pods = {"sandboxes": {"pods": {"imagePullPolicy": "Always"}}}
    spec = built({**SLOTS, **pods, "image": ours, "pools": {"default": pool}}, monkeypatch)["spec"]
    sandbox, sidecar = spec["containers"]
    for container in (sandbox, sidecar):
        assert (container["image"], container["imagePullPolicy"]) == (f"r.example/sidecar:{VERSION}", "Never")
    assert sandbox["command"] == ["/.sandlot/holder"]
    assert "privileged" not in sandbox["securityContext"]


def test_a_pool_with_an_image_starts_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pod = built({**SLOTS, "pools": {"default": {"size": 1, "template": PYTHON}}}, monkeypatch)
    assert pod["spec"]["containers"][0]["image"] == "python:3.12"


@pytest.mark.parametrize("name", [GATEWAY, CONTROLLER])
def test_the_gateway_and_the_controller_have_the_agents_token(slots: list[Resource], name: str) -> None:
    deployment = one(slots, "Deployment", name)
    directory, _, key = environment(deployment)["SANDLOT_NODE_AGENT_TOKEN_FILE"].rpartition("/")
    pod = deployment["spec"]["template"]["spec"]
    [mount] = [each for each in pod["containers"][0]["volumeMounts"] if each["mountPath"] == directory]
    [volume] = [each for each in pod["volumes"] if each["name"] == mount["name"]]
    assert mount["readOnly"] is True
    assert volume["secret"]["secretName"] == TOKEN
    secrets = token_secrets(slots)
    assert secrets.keys() == {SANDBOXES, NAMESPACE}
    assert secrets[SANDBOXES] == secrets[NAMESPACE]
    assert list(secrets[NAMESPACE]) == [key]


def test_without_slots_only_the_agent_has_its_token() -> None:
    resources = render({"nodeAgent": {"enabled": True}})
    assert token_secrets(resources).keys() == {SANDBOXES}
    for name in (GATEWAY, CONTROLLER):
        assert "node-agent" not in str(one(resources, "Deployment", name))


def test_a_token_of_the_users_own() -> None:
    resources = render({**SLOTS, "nodeAgent": {"enabled": True, "existingTokenSecret": "mine"}})
    assert not token_secrets(resources)
    assert "'secretName': 'mine'" in str(one(resources, "Deployment", GATEWAY))


def test_tenants_credentials_are_in_gateway_and_controller_only() -> None:
    values = {
        **SLOTS,
        "gateway": {"registryCredentialsSecret": "registries"},
        "sandboxes": {"pods": {"imagePullPolicy": "Always"}},
    }
    resources = render(values)
    having = [each["metadata"]["name"] for each in resources if "'secretName': 'registries'" in str(each)]
    assert sorted(having) == [CONTROLLER, GATEWAY]
    for name in having:
        deployment = one(resources, "Deployment", name)
        directory = environment(deployment)["SANDLOT_REGISTRY_CREDENTIALS"]
        mounts = deployment["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
        [mount] = [each for each in mounts if each["mountPath"] == directory]
        assert mount["readOnly"] is True


@pytest.mark.parametrize(("enabled", "wanted"), [(True, "exclusive"), (False, "shared")])
def test_the_installer_configures_gvisor_for_them(enabled: bool, wanted: str) -> None:
    gvisor = {"installer": {"enabled": True, "image": "x"}}
    resources = render({**SLOTS, "slots": {"enabled": enabled}, "gvisor": gvisor})
    pod = one(resources, "DaemonSet", "gvisor-installer")["spec"]["template"]["spec"]
    assert pod["initContainers"][0]["command"][7] == wanted


@pytest.mark.programs
@pytest.mark.parametrize("release", [{"nodeAgent": {"enabled": True}}], indirect=True)
def test_the_token_stays_when_slots_are_switched_on(release: Release) -> None:
    def token(namespace: str) -> dict[str, Any] | None:
        found = release.get(f"/api/v1/namespaces/{namespace}/secrets/{release.fullname}-node-agent")
        return found and found["data"]

    first = token(release.sandboxes)
    assert first is not None
    assert token(release.namespace) is None
    for _ in range(2):
        release.run("upgrade", "--set", "slots.enabled=true")
        assert token(release.sandboxes) == token(release.namespace) == first
