"""The pod of an instance: what docs/kubernetes-internals.md promises of it, and what each setting changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sandlot_controller.plan import pod as pods
from sandlot_controller.plan.placement.needs import of_spec
from sandlot_controller.settings import Settings, Toleration
from sandlot_kube import template
from sandlot_kube.objects import Metadata, PoolReuse, Sandbox, SandboxPool

from images.contents import HOLDER

ID = "i-0123456789abcdef"


def settings(**values: Any) -> Settings:
    return Settings(
        namespace="sandboxes",
        key_file=Path("/none"),
        webhook_url="http://gateway:8641/internal/sidecar",
        sidecar_image="sandlot/sidecar:1",
        **values,
    )


def build(
    *,
    node: str | None = None,
    of: dict[str, Any] | None = None,
    spec: dict[str, Any] | None = None,
    **values: Any,
) -> dict[str, Any]:
    """`of`: fields of the template, `spec`: of the pool."""
    what = {"image": "python:3.12", "cpu": 2, "memory": 1 << 30, "disk": 5 << 30, **(of or {})}
    body = {"metadata": {"name": "p"}, "spec": {"template": what, "size": 1, **(spec or {})}}
    pool = msgspec.convert(body, SandboxPool)
    return pods.pool_pod(pool, instance_id=ID, token="sit_x", settings=settings(**values), node=node)


def test_a_pool_s_pod() -> None:
    pod = build(runtime_class="gvisor", subdomain="boxes", priority_class="low", image_pull_secrets=["mine"])
    labels, spec = pod["metadata"]["labels"], pod["spec"]
    assert pod["metadata"]["name"] == labels["sandlot.dev/instance"] == spec["hostname"] == ID
    assert labels["sandlot.dev/pool"] == "p"
    assert labels["app.kubernetes.io/component"] == "sandbox"
    told = template.decode(pod["metadata"]["annotations"]["sandlot.dev/template"])
    assert template.key(told) == labels["sandlot.dev/template"]
    assert "ownerReferences" not in pod["metadata"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["shareProcessNamespace"] is True
    assert spec["restartPolicy"] == "Never"
    assert spec["subdomain"] == "boxes"
    assert spec["runtimeClassName"] == "gvisor"
    assert spec["priorityClassName"] == "low"
    assert spec["imagePullSecrets"] == [{"name": "mine"}]
    sandbox, sidecar = spec["containers"]
    assert {"name": "SANDLOT_TARGET", "value": ID} in sandbox["env"]
    assert "privileged" not in sandbox["securityContext"]
    assert sandbox["securityContext"]["capabilities"] == {"drop": ["NET_RAW"]}
    assert sidecar["securityContext"]["privileged"] is True


def test_the_token_is_in_the_sidecar_s_environment_only() -> None:
    pod = build()
    sandbox, sidecar = pod["spec"]["containers"]
    config = json.loads(
        next(one["value"] for one in sidecar["env"] if one["name"] == "SANDLOT_SIDECAR_CONFIG")
    )
    assert config["token"] == "sit_x"
    assert config["target"] is True
    assert config["listen"] == "0.0.0.0:8700"
    assert config["limits"] == {"cpu": 2, "memory": 1 << 30, "pids": 1024}
    assert config["ops"] == {"reattach_grace": 60}
    assert "sit_x" not in json.dumps([sandbox, pod["metadata"]])


def test_gvisor_is_asked_to_keep_the_sandbox_s_files_itself() -> None:
    pod = build(runtime_class="gvisor")
    said = {key: value for key, value in pod["metadata"]["annotations"].items() if "gvisor" in key}
    hint = "dev.gvisor.spec.mount.files"
    assert said == {f"{hint}.type": "bind", f"{hint}.share": "pod", f"{hint}.options": f"rw,size={5 << 30}"}
    volumes = {
        each["name"]: int(each["emptyDir"]["sizeLimit"])
        for each in pod["spec"]["volumes"]
        if "emptyDir" in each
    }
    # The kubelet would evict the pod where the code's own limit is.
    assert volumes["files"] > 5 << 30
    sidecar = pod["spec"]["containers"][1]
    [place] = [each["mountPath"] for each in sidecar["volumeMounts"] if each["name"] == "files"]
    config = json.loads(next(each["value"] for each in sidecar["env"] if "CONFIG" in each["name"]))
    assert (config["root"]["disk"], config["root"]["upper"]) == (5 << 30, place)
    # gVisor keeps a volume itself only as long as nothing is in it: nobody else mounts it.
    assert [each["name"] for each in pod["spec"]["containers"][0]["volumeMounts"]] == ["holder"]


@pytest.mark.parametrize("way", ["image", "copy"])
def test_no_program_of_the_image_holds_the_container(way: str) -> None:
    spec = build(holder=way)["spec"]
    sandbox, sidecar = spec["containers"]
    [mount] = sandbox["volumeMounts"]
    assert sandbox["command"] == [f"{mount['mountPath']}/holder"]
    assert "args" not in sandbox
    assert mount["readOnly"] is True
    [volume] = [each for each in spec["volumes"] if each["name"] == mount["name"]]
    # Commands do not see it.
    config = json.loads(next(each["value"] for each in sidecar["env"] if "CONFIG" in each["name"]))
    assert config["root"]["mask"] == [mount["mountPath"]]
    if way == "image":
        assert volume["image"] == {"reference": "sandlot/sidecar:1", "pullPolicy": "IfNotPresent"}
        assert f"/{mount['subPath']}/holder" == HOLDER
        assert "initContainers" not in spec
    else:
        [copying] = spec["initContainers"]
        assert copying["image"] == "sandlot/sidecar:1"
        assert copying["command"] == ["cp", HOLDER, sandbox["command"][0]]
        assert copying["resources"] == sidecar["resources"]
        assert "subPath" not in mount
        assert "emptyDir" in volume


def test_only_the_class_of_gvisor_has_a_kernel_of_its_own() -> None:
    """There the sidecar's processor time is the sandbox's to use."""

    def cores(pod: dict[str, Any]) -> str:
        return pod["spec"]["containers"][1]["resources"]["limits"]["cpu"]

    assert cores(build(runtime_class="gvisor")) == cores(
        build(of={"runtimeClass": "gvisor"}, runtime_class="gvisor")
    )
    assert cores(build(of={"runtimeClass": "nvidia"}, runtime_class="gvisor")) == cores(build())
    assert cores(build()) != cores(build(runtime_class="gvisor"))


def test_a_pool_s_pod_runs_one_sandbox_after_the_other_unless_the_pool_says_never() -> None:
    def mark(**spec: Any) -> str | None:
        return build(spec=spec)["metadata"]["annotations"].get("sandlot.dev/reuse")

    assert mark() == mark(reuse={"maxUses": 7}) == mark(reuse={"policy": "tenant"}) == "tenant"
    assert mark(reuse={"policy": "never"}) is None
    assert mark(reuse={"policy": "of a newer version"}) is None


def test_a_pool_without_an_image_needs_an_images_directory() -> None:
    slots = template.Template()
    with_directory = settings(images_directory="/var/lib/sandlot/images", registries=["r.example"])
    assert pods.refusal(slots, settings=with_directory) is None
    why = pods.refusal(slots, settings=settings())
    assert why is not None
    assert "slots.enabled" in why
    assert pods.refusal(template.Template("r.example/a"), settings=with_directory) is None
    assert pods.refusal(template.Template("python"), settings=with_directory) is not None


def test_pods_with_gpus_keep_their_image() -> None:
    """The node puts the driver's files into their container, where no sandbox of another image would see them."""
    slots = settings(images_directory="/var/lib/sandlot/images")
    plain, gpu = (
        pods.sidecar_config(template.Template("x", gpu_count=count), instance_id=ID, token="", settings=slots)
        for count in (0, 1)
    )
    assert (plain["root"].get("images"), gpu["root"].get("images")) == ("/var/lib/sandlot/images", None)
    pod = build(of={"gpuCount": 1}, images_directory="/var/lib/sandlot/images")
    assert "sandlot.dev/lays-images" not in pod["metadata"]["annotations"]
    assert "images" not in {volume["name"] for volume in pod["spec"]["volumes"]}
    why = pods.refusal(template.Template(gpu_count=1), settings=slots)
    assert why is not None
    assert "set an image" in why


def test_another_images_directory_is_another_pod() -> None:
    """So the warm pods are replaced when slots are switched on."""
    usual = msgspec.convert({}, PoolReuse)
    builds = {
        pods.build(template.Template("x"), settings=settings(images_directory=each), policy=usual)
        for each in (None, "/a", "/b")
    }
    assert len(builds) == 3


def test_burstable_and_guaranteed() -> None:
    resources = build(cpu_share=0.1, memory_share=0.25)["spec"]["containers"][0]["resources"]
    assert resources["limits"] == {"cpu": "2000m", "memory": "1073741824", "ephemeral-storage": str(5 << 30)}
    assert resources["requests"] == {"cpu": "200m", "memory": "268435456", "ephemeral-storage": "0"}


def test_under_gvisor_there_is_room_above_the_limit_which_nobody_requests() -> None:
    """A command is ended there by the sidecar; without that room the node would kill the pod first."""
    made = build(runtime_class="gvisor", memory_headroom=128 << 20)["spec"]["containers"]
    resources = next(each["resources"] for each in made if each["name"] == "sandbox")
    assert resources["limits"]["memory"] == str((1 << 30) + (128 << 20))
    assert resources["requests"]["memory"] == "268435456"
    assert (
        '"memory":1073741824' in next(each for each in made if each["name"] == "sidecar")["env"][0]["value"]
    )
    other = build(of={"runtimeClass": "nvidia"}, runtime_class="gvisor")["spec"]["containers"][0]
    assert other["resources"]["limits"]["memory"] == "1073741824"
    for container in build(guaranteed=True)["spec"]["containers"]:
        assert container["resources"]["requests"] == container["resources"]["limits"]


def test_gpus_selectors_and_tolerations() -> None:
    pod = build(
        of={"gpuCount": 2, "gpuType": "A100"},
        node_selector={"pool": "sandboxes"},
        tolerations=[Toleration(key="gpu", operator="Exists")],
        gpu_label="gpu.type",
    )
    spec = pod["spec"]
    assert spec["nodeSelector"] == {"pool": "sandboxes", "gpu.type": "A100"}
    unreachable = {
        "key": "node.kubernetes.io/unreachable",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 30,
    }
    assert spec["tolerations"] == [{"key": "gpu", "operator": "Exists"}, unreachable]
    resources = spec["containers"][0]["resources"]
    assert resources["limits"]["nvidia.com/gpu"] == resources["requests"]["nvidia.com/gpu"] == "2"
    assert "nvidia.com/gpu" not in spec["containers"][1]["resources"]["limits"]


@pytest.mark.parametrize("key", [None, "node.kubernetes.io/unreachable"])
def test_a_toleration_of_unreachable_nodes_is_the_user_s_to_give(key: str | None) -> None:
    theirs = Toleration(key=key, operator="Exists", effect="NoExecute", tolerationSeconds=5)
    assert build(tolerations=[theirs])["spec"]["tolerations"] == [theirs.model_dump(exclude_none=True)]


def test_the_template_s_runtime_class_goes_before_the_default() -> None:
    assert build(of={"runtimeClass": "runc"}, runtime_class="gvisor")["spec"]["runtimeClassName"] == "runc"
    assert "runtimeClassName" not in build()["spec"]


def test_a_chosen_node_is_the_only_one_and_can_be_read_back() -> None:
    pod = build(node="n1")
    terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = terms["nodeSelectorTerms"]
    assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    assert pods.chosen_node(msgspec.convert(pod["metadata"], Metadata)) == "n1"
    assert pods.chosen_node(Metadata()) is None
    assert "affinity" not in build()["spec"]


def test_a_node_gets_waiting_pods_only_up_to_one_less_than_may_start_there() -> None:
    pod = build(starts_per_node=3)
    (few,) = pod["spec"]["topologySpreadConstraints"]
    assert (few["maxSkew"], few["whenUnsatisfiable"]) == (2, "DoNotSchedule")
    counted = few["labelSelector"]["matchLabels"].items()
    for each in (pod, build(node="n1")):
        assert counted <= each["metadata"]["labels"].items()
    assert "topologySpreadConstraints" not in build(node="n1")["spec"]


def test_what_a_node_needs_to_have_for_a_pod() -> None:
    of = {"cpu": 2, "memory": 1 << 30, "gpuCount": 1, "gpuType": "L4"}
    asked = msgspec.convert({"image": "x", **of}, template.Template)
    found = of_spec(pods.spec_of(asked, settings=settings(node_selector={"a": "1"}, disk_share=0.5)))
    assert dict(found.requests) == {
        "cpu": 210,
        "memory": (256 + 32) << 20,
        "ephemeral-storage": asked.disk // 2,
        "nvidia.com/gpu": 1,
        "pods": 1,
    }
    assert dict(found.selector) == {"a": "1", "nvidia.com/gpu.product": "L4"}
    assert [one.key for one in found.tolerations] == ["node.kubernetes.io/unreachable"]


def test_a_cold_start_s_pod_belongs_to_its_resource() -> None:
    body = {"metadata": {"name": ID, "uid": "u-1"}, "spec": {"template": {"image": "x"}}}
    pod = pods.sandbox_pod(msgspec.convert(body, Sandbox), token="sit_x", settings=settings())
    (owner,) = pod["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == ("Sandbox", ID, "u-1", True)
    assert pod["metadata"]["labels"]["sandlot.dev/for"] == ID
    assert "sandlot.dev/pool" not in pod["metadata"]["labels"]


def test_the_gateway_s_address_replaces_no_pod() -> None:
    """A term whose leader cannot read it would replace them all, and the next one again."""
    one = template.Template(image="python:3.12")
    known, unknown = settings(webhook_address="203.0.113.9"), settings()
    assert pods.build(one, settings=known, policy=PoolReuse()) == pods.build(
        one, settings=unknown, policy=PoolReuse()
    )
