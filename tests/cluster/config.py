"""The cluster as kind is to make it: nodes, kubelet, containerd with gVisor, API server with an audit log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cluster.paths import BIN, CLUSTER, STATE

MAX_PODS = 300
# Where gVisor's shim looks for what it must know before it is told of any configuration: whether to serve a whole pod.
RUNSC_CONFIG = "/etc/containerd/runsc/config.toml"
REGISTRY_HOST = "registry.sandlot.test:5000"
# A snapshotter that a test runs on a node, and the runtime handler for whose images containerd uses it.
LAZY_SNAPSHOTTER, LAZY_HANDLER = "stargz", "lazy"
LAZY_SOCKET = "/run/containerd-stargz-grpc/containerd-stargz-grpc.sock"

AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "None", "verbs": ["get", "list", "watch"]}, {"level": "Metadata"}],
}

RUNTIME_CLASS = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "gvisor"},
    "handler": "runsc",
}


def cgroup_v2(root: Path = Path("/sys/fs/cgroup")) -> bool:
    """Whether this machine, and so a node on it, has the unified hierarchy alone."""
    return (root / "cgroup.controllers").exists()


def runsc_config(*, v2: bool, dense: bool = False) -> str:
    """gVisor's configuration on a node; one shim for a pod where it is to be dense, else one for each container."""
    settings = {
        "platform": "systrap",
        "systemd-cgroup": str(v2).lower(),
        "net-raw": "true",
        "file-access-mounts": "exclusive",  # as the chart's installer sets it where slots are enabled
    }
    return f"grouping = {str(dense).lower()}\n[runsc_config]\n" + "".join(
        f'{name} = "{value}"\n' for name, value in settings.items()
    )


def containerd_patch(*, v2: bool, dense: bool = False) -> str:
    """What is different in containerd's configuration: gVisor, the cgroup driver, a registry's directory.

    And a lazy snapshotter. containerd first calls it when an image of its handler is pulled, so it need not run.
    """
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    # containerd 2.2 and later look at every container each second, and gVisor's shim starts a runsc for each look: of
    # 256 pods each look is 768 processes at once.
    period = "1h" if dense else "1m"
    return f"""\
[plugins."io.containerd.cri.v1.runtime"]
  stats_collect_period = "{period}"
[plugins."io.containerd.cri.v1.images"]
  disable_snapshot_annotations = false
[plugins."io.containerd.cri.v1.images".runtime_platforms.{LAZY_HANDLER}]
  snapshotter = "{LAZY_SNAPSHOTTER}"
[proxy_plugins.{LAZY_SNAPSHOTTER}]
  type = "snapshot"
  address = "{LAZY_SOCKET}"
[{cri}]
  restrict_oom_score_adj = true
[{cri}.registry]
  config_path = "/etc/containerd/certs.d"
[{cri}.containerd.runtimes.runc.options]
  SystemdCgroup = {"true" if v2 else "false"}
[{cri}.containerd.runtimes.runsc]
  runtime_type = "io.containerd.runsc.v1"
  pod_annotations = ["dev.gvisor.*"]
[{cri}.containerd.runtimes.runsc.options]
  TypeUrl = "io.containerd.runsc.v1.options"
  ConfigPath = "{RUNSC_CONFIG}"
"""


def kubelet_patch(*, v2: bool, dense: bool = False) -> dict[str, Any]:
    """The kubelet's settings: as many pods as the density tests want, and what a machine without all rights needs."""
    # A kubelet that may have to evict asks every 10 s what each container uses: a runsc for each of them, at once.
    thresholds = (
        "memory.available",
        "nodefs.available",
        "nodefs.inodesFree",
        "imagefs.available",
        "imagefs.inodesFree",
    )
    no_looks = {"localStorageCapacityIsolation": False, "evictionHard": dict.fromkeys(thresholds, "0%")}
    return {
        "kind": "KubeletConfiguration",
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "cgroupDriver": "systemd" if v2 else "cgroupfs",
        "failCgroupV1": False,
        "featureGates": {"KubeletInUserNamespace": True},
        "maxPods": MAX_PODS,
        "serializeImagePulls": False,
        "registryPullQPS": 0,
        # An image that was loaded, and then pulled under another name as well, would have to be pulled under both.
        "imagePullCredentialsVerificationPolicy": "NeverVerify",
        "eventRecordQPS": 0,
        "kubeAPIQPS": 200,
        "kubeAPIBurst": 400,
        **(no_looks if dense else {}),
    }


def housekeeping_patches() -> list[dict[str, Any]]:
    """A kubelet that counts each process's sockets once a minute: an argument, no field of its configuration."""
    registration = {"kubeletExtraArgs": [{"name": "housekeeping-interval", "value": "60s"}]}
    return [
        {"kind": kind, "apiVersion": "kubeadm.k8s.io/v1beta4", "nodeRegistration": registration}
        for kind in ("InitConfiguration", "JoinConfiguration")
    ]


def cluster_patch() -> dict[str, Any]:
    """The control plane's settings."""
    return {
        "kind": "ClusterConfiguration",
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "etcd": {"local": {"extraArgs": [{"name": "unsafe-no-fsync", "value": "true"}]}},
        "apiServer": {
            "extraArgs": [
                {"name": "audit-policy-file", "value": "/etc/kubernetes/audit.yaml"},
                {"name": "audit-log-path", "value": "/var/log/kubernetes/audit.log"},
                {"name": "audit-log-maxsize", "value": "500"},
            ],
            "extraVolumes": [
                {
                    "name": "audit-policy",
                    "hostPath": "/etc/kubernetes/audit.yaml",
                    "mountPath": "/etc/kubernetes/audit.yaml",
                    "readOnly": True,
                    "pathType": "File",
                },
                {
                    "name": "audit-log",
                    "hostPath": "/var/log/kubernetes",
                    "mountPath": "/var/log/kubernetes",
                    "readOnly": False,
                    "pathType": "DirectoryOrCreate",
                },
            ],
        },
        "controllerManager": {
            "extraArgs": [
                {"name": "node-cidr-mask-size-ipv4", "value": "23"},
                {"name": "kube-api-qps", "value": "200"},
                {"name": "kube-api-burst", "value": "400"},
            ]
        },
        "scheduler": {
            "extraArgs": [
                {"name": "kube-api-qps", "value": "500"},
                {"name": "kube-api-burst", "value": "1000"},
            ]
        },
    }


def kind_config(*, workers: int, v2: bool, dense: bool = False) -> dict[str, Any]:
    """The whole configuration for `kind create cluster --config`; `dense`: for hundreds of idle sandboxes on a node."""
    patches = [kubelet_patch(v2=v2, dense=dense), cluster_patch(), *(housekeeping_patches() if dense else [])]
    mounts = [
        {"hostPath": str(BIN / "runsc"), "containerPath": "/usr/local/bin/runsc", "readOnly": True},
        {
            "hostPath": str(BIN / "containerd-shim-runsc-v1"),
            "containerPath": "/usr/local/bin/containerd-shim-runsc-v1",
            "readOnly": True,
        },
        {
            "hostPath": str(STATE / "runsc.toml"),
            "containerPath": RUNSC_CONFIG,
            "readOnly": True,
        },
    ]
    audit = {
        "hostPath": str(STATE / "audit.yaml"),
        "containerPath": "/etc/kubernetes/audit.yaml",
        "readOnly": True,
    }
    nodes = [{"role": "control-plane", "extraMounts": [*mounts, audit]}]
    nodes += [{"role": "worker", "extraMounts": mounts} for _ in range(workers)]
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "name": CLUSTER,
        "networking": {
            "apiServerAddress": "127.0.0.1",
            "kubeProxyMode": "nftables",
            "podSubnet": "10.244.0.0/16",
            "serviceSubnet": "10.96.0.0/16",
        },
        "nodes": nodes,
        "containerdConfigPatches": [containerd_patch(v2=v2, dense=dense)],
        "kubeadmConfigPatches": [json.dumps(patch) for patch in patches],
    }
