"""The cluster's configuration: the cgroup driver agrees everywhere, and what kind is given can be read."""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.cluster import config, nodeimage
from tests.cluster.paths import HERE
from tests.cluster.shell import ClusterError


@pytest.mark.parametrize("v2", [False, True])
def test_kubelet_runc_and_runsc_use_the_same_cgroup_driver(v2: bool) -> None:
    patch = tomllib.loads(config.containerd_patch(v2=v2))
    runtimes = patch["plugins"]["io.containerd.grpc.v1.cri"]["containerd"]["runtimes"]
    runsc = tomllib.loads(config.runsc_config(v2=v2))["runsc_config"]
    assert config.kubelet_patch(v2=v2)["cgroupDriver"] == ("systemd" if v2 else "cgroupfs")
    assert runtimes["runc"]["options"]["SystemdCgroup"] is v2
    assert runsc["systemd-cgroup"] == str(v2).lower()
    assert runsc["net-raw"] == "true"
    assert runsc["file-access-mounts"] == "exclusive"


def test_the_runtime_class_names_a_runtime_that_containerd_has() -> None:
    patch = tomllib.loads(config.containerd_patch(v2=False))
    runtimes = patch["plugins"]["io.containerd.grpc.v1.cri"]["containerd"]["runtimes"]
    assert config.RUNTIME_CLASS["handler"] in runtimes


def test_only_one_handlers_images_are_lazy() -> None:
    patch = tomllib.loads(config.containerd_patch(v2=False))
    assert patch["proxy_plugins"].keys() == {config.LAZY_SNAPSHOTTER}
    images = patch["plugins"]["io.containerd.cri.v1.images"]
    assert images["runtime_platforms"] == {config.LAZY_HANDLER: {"snapshotter": config.LAZY_SNAPSHOTTER}}
    assert images["disable_snapshot_annotations"] is False, "it learns from them which layer it is asked for"
    assert "snapshotter" not in images, "pods have the nodes' own"


@pytest.mark.parametrize("workers", [1, 2])
def test_every_node_has_gvisor_and_the_control_plane_the_audit_policy(workers: int) -> None:
    wanted = config.kind_config(workers=workers, v2=False)
    assert [node["role"] for node in wanted["nodes"]] == ["control-plane"] + ["worker"] * workers
    for node in wanted["nodes"]:
        places = {mount["containerPath"] for mount in node["extraMounts"]}
        assert {"/usr/local/bin/runsc", config.RUNSC_CONFIG} <= places
        assert ("/etc/kubernetes/audit.yaml" in places) == (node["role"] == "control-plane")


@pytest.mark.parametrize("dense", [False, True])
def test_dense_nodes_share_shims_and_are_looked_at_less_often(dense: bool) -> None:
    assert tomllib.loads(config.runsc_config(v2=False, dense=dense))["grouping"] is dense
    runtime = tomllib.loads(config.containerd_patch(v2=False, dense=dense))["plugins"][
        "io.containerd.cri.v1.runtime"
    ]
    assert runtime["stats_collect_period"] == ("1h" if dense else "1m")
    patches = [
        json.loads(text)
        for text in config.kind_config(workers=1, v2=False, dense=dense)["kubeadmConfigPatches"]
    ]
    assert ("evictionHard" in patches[0]) is dense
    kinds = {patch["kind"] for patch in patches if "nodeRegistration" in patch}
    assert kinds == ({"InitConfiguration", "JoinConfiguration"} if dense else set())


def test_a_node_has_addresses_for_as_many_pods_as_its_kubelet_takes() -> None:
    extra = {item["name"]: item["value"] for item in config.cluster_patch()["controllerManager"]["extraArgs"]}
    kubelet = json.loads(config.kind_config(workers=1, v2=False)["kubeadmConfigPatches"][0])
    assert 2 ** (32 - int(extra["node-cidr-mask-size-ipv4"])) - 2 >= kubelet["maxPods"] == 300


def test_kinds_configuration_of_containerd_is_changed_where_it_must_be() -> None:
    text = '  sandbox_image = "other:1"\n  restrict_oom_score_adj = false\n  keep = 1\n'
    assert nodeimage.containerd_config(text, pause="pause:2") == (
        '  sandbox_image = "pause:2"\n  restrict_oom_score_adj = true\n  keep = 1\n'
    )


def test_an_unknown_configuration_of_containerd_is_refused() -> None:
    with pytest.raises(ClusterError, match="not as expected"):
        nodeimage.containerd_config("version = 4\n", pause="pause:2")


@pytest.mark.parametrize("name", ["entrypoint", "kubelet-cgroups", "cni"])
def test_a_nodes_scripts_can_be_parsed(name: str) -> None:
    subprocess.run(["bash", "-n", HERE / "node" / name], check=True)


@pytest.mark.parametrize(
    ("manifest", "image"),
    [("cni.yaml", nodeimage.CNI_IMAGE), ("network-policies.yaml", nodeimage.POLICY_IMAGE)],
)
def test_manifests_name_the_images_that_are_built(manifest: str, image: str) -> None:
    documents = yaml.safe_load_all((HERE / "node" / manifest).read_text())
    daemon = next(document for document in documents if document["kind"] == "DaemonSet")
    assert [c["image"] for c in daemon["spec"]["template"]["spec"]["containers"]] == [image]


def test_cgroup_version_is_told_by_the_unified_root(tmp_path: Path) -> None:
    assert config.cgroup_v2(tmp_path) is False
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    assert config.cgroup_v2(tmp_path) is True
