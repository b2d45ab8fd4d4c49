"""From the chart's values to a sandbox's pod: what is set arrives, and the API server takes it."""

from __future__ import annotations

import os
from typing import Any

import msgspec
import pytest
from sandlot_controller import settings as controller
from sandlot_controller.plan import pod as pods
from sandlot_kube.objects import SandboxPool

from tests.chart.release import Release
from tests.chart.render import VERSION, environment, of_kind, one, render

GIB = 1 << 30
ID = "i-0123456789abcdef"
PYTHON = {"image": "python:3.12"}
# What a large installation sets, all at once.
VALUES: dict[str, Any] = {
    "sandboxes": {
        "pods": {
            "guaranteed": True,
            "imagePullPolicy": "Always",
            "imagePullSecrets": ["images"],
            "nodeSelector": {"pool": "sandboxes"},
            "tolerations": [{"key": "sandboxes", "operator": "Exists", "effect": "NoSchedule"}],
            "gpuResource": "example.com/gpu",
            "gpuLabel": "example.com/gpu.kind",
            "sidecarCpuLimit": 0.5,
        }
    },
    "pools": {
        "default": {
            "template": {**PYTHON, "gpuCount": 2, "gpuType": "L4", "runtimeClass": "nvidia"},
            "size": 1,
        }
    },
}


def built(values: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The pod that the controller makes for the values' pool `default`, or for one of python:3.12."""
    values = {"pools": {"default": {"size": 1, "template": PYTHON}}} | values
    resources = render(values)
    for name in [name for name in os.environ if name.startswith("SANDLOT_")]:
        monkeypatch.delenv(name)
    for name, value in environment(one(resources, "Deployment", "sandlot-controller")).items():
        monkeypatch.setenv(name, value)
    pool = msgspec.convert(one(resources, "SandboxPool", "default"), SandboxPool)
    return pods.pool_pod(pool, instance_id=ID, token="sit_x", settings=controller.load())


def with_pods(**settings: Any) -> dict[str, Any]:
    return {"sandboxes": {"pods": settings}}


def test_the_defaults_request_a_share(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = built({}, monkeypatch)["spec"]
    sandbox, sidecar = spec["containers"]
    assert sandbox["image"] == "python:3.12"
    assert sandbox["resources"]["limits"] == {
        "cpu": "1000m", "memory": str(GIB + (256 << 20)), "ephemeral-storage": str(5 * GIB)
    }  # fmt: skip
    assert sandbox["resources"]["requests"] == {
        "cpu": "100m", "memory": str(GIB // 4), "ephemeral-storage": "0"
    }  # fmt: skip
    assert sidecar["resources"]["requests"] == {
        "cpu": "10m", "memory": str(32 << 20), "ephemeral-storage": "0"
    }  # fmt: skip
    # Together they are the volume's: what fills it is met by the sidecar before the kubelet evicts the pod.
    assert sidecar["resources"]["limits"]["ephemeral-storage"] == str(GIB)
    assert [each["emptyDir"]["sizeLimit"] for each in spec["volumes"] if "emptyDir" in each] == [
        str(GIB),
        str(6 * GIB),
    ]
    assert sidecar["image"] == f"sandlot/sidecar:{VERSION}"
    assert spec["runtimeClassName"] == "gvisor"
    assert spec["priorityClassName"] == "sandlot-sandbox"
    assert not {"imagePullSecrets", "nodeSelector", "schedulerName"} & spec.keys()


def test_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = with_pods(cpuShare=0.5, memoryShare=1, diskShare=0.1)
    sandbox, _ = built(shares, monkeypatch)["spec"]["containers"]
    assert sandbox["resources"]["requests"] == {
        "cpu": "500m", "memory": str(GIB), "ephemeral-storage": str(GIB // 2)
    }  # fmt: skip


def test_guaranteed_is_so_for_both_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    for container in built(with_pods(guaranteed=True), monkeypatch)["spec"]["containers"]:
        assert container["resources"]["requests"] == container["resources"]["limits"]


def test_where_sandboxes_may_run(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = built(VALUES, monkeypatch)["spec"]
    assert spec["nodeSelector"] == {"pool": "sandboxes", "example.com/gpu.kind": "L4"}
    assert VALUES["sandboxes"]["pods"]["tolerations"][0] in spec["tolerations"]


def test_gpus_and_the_template_s_own_runtime_class(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = built(VALUES, monkeypatch)["spec"]
    sandbox, sidecar = spec["containers"]
    assert sandbox["resources"]["limits"]["example.com/gpu"] == "2"
    assert sandbox["resources"]["requests"]["example.com/gpu"] == "2"
    assert "example.com/gpu" not in sidecar["resources"]["limits"]
    assert spec["runtimeClassName"] == "nvidia"


def test_private_images(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = built(VALUES, monkeypatch)["spec"]
    assert spec["imagePullSecrets"] == [{"name": "images"}]
    assert spec["containers"][0]["imagePullPolicy"] == "Always"
    ours = built({"image": {"registry": "r.example/team", "tag": "7", "pullPolicy": "Never"}}, monkeypatch)
    sidecar = ours["spec"]["containers"][1]
    assert (sidecar["image"], sidecar["imagePullPolicy"]) == ("r.example/team/sidecar:7", "Never")


def test_without_gvisor_the_nodes_default_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "runtimeClassName" not in built({"gvisor": {"enabled": False}}, monkeypatch)["spec"]
    other = built({"gvisor": {"runtimeClass": "walled", "createRuntimeClass": False}}, monkeypatch)
    assert other["spec"]["runtimeClassName"] == "walled"


def test_a_pool_of_the_values_reuses_its_pods_unless_it_says_never(monkeypatch: pytest.MonkeyPatch) -> None:
    def mark(**pool: Any) -> str | None:
        pools = {"default": {"size": 1, "template": PYTHON, **pool}}
        return built({"pools": pools}, monkeypatch)["metadata"]["annotations"].get("sandlot.dev/reuse")

    assert mark() == "tenant"
    assert mark(reuse={"policy": "never"}) is None


def test_an_autoscaled_pool_arrives_as_one() -> None:
    (made,) = of_kind(
        render({"pools": {"scaled": {"minSize": 2, "maxSize": 40, "template": PYTHON}}}), "SandboxPool"
    )
    spec = msgspec.convert(made, SandboxPool).spec
    assert (spec.size, spec.min_size, spec.max_size) == (None, 2, 40)


@pytest.mark.programs
@pytest.mark.parametrize(
    ("values", "qos"),
    [
        ({}, "Burstable"),
        (VALUES, "Guaranteed"),
        ({"slots": {"enabled": True}, "nodeAgent": {"enabled": True}}, "Burstable"),
    ],
)
def test_the_api_server_takes_the_pod(
    values: dict[str, Any], qos: str, release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Strictly: a field that it does not know is refused. The QoS class is its own word."""
    pod = built(values, monkeypatch)
    spec = pod["spec"]
    # Of another release and cluster: this one has neither the class nor the nvidia runtime.
    spec.pop("priorityClassName")
    if spec["runtimeClassName"] != "gvisor":
        spec.pop("runtimeClassName")
    path = f"/api/v1/namespaces/{release.sandboxes}/pods?dryRun=All&fieldValidation=Strict"
    assert release.server.call("POST", path, pod)["status"]["qosClass"] == qos


@pytest.mark.parametrize(
    ("version", "chosen", "way"),
    [
        ("1.30.0", "auto", "copy"),
        ("1.36.0", "auto", "image"),
        ("1.30.0", "image", "image"),
        ("1.36.3", "copy", "copy"),
    ],
)
def test_the_container_s_first_process_comes_by_what_the_cluster_knows(
    version: str, chosen: str, way: str
) -> None:
    resources = render({"sandboxes": {"holder": chosen}}, kubernetes=version)
    assert environment(one(resources, "Deployment", "sandlot-controller"))["SANDLOT_HOLDER"] == way
