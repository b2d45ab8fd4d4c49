"""The cluster as kind is to make it: nodes, kubelet, containerd with gVisor, API server with an audit log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cluster.paths import BIN, CLUSTER, STATE

MAX_PODS = 300
REGISTRY_HOST = "registry.sandlot.test:5000"

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


def runsc_config(*, v2: bool) -> str:
    """gVisor's configuration on a node."""
    settings = {"platform": "systrap", "systemd-cgroup": str(v2).lower(), "net-raw": "true"}
    return "[runsc_config]\n" + "".join(f'{name} = "{value}"\n' for name, value in settings.items())


def containerd_patch(*, v2: bool) -> str:
    """What is different in containerd's configuration: gVisor, the cgroup driver, a registry's directory."""
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    # containerd 2.2 and later look at every container each second, and gVisor's shim starts a runsc for each look.
    return f"""\
[plugins."io.containerd.cri.v1.runtime"]
  stats_collect_period = "1m"
[{cri}]
  restrict_oom_score_adj = true
[{cri}.registry]
  config_path = "/etc/containerd/certs.d"
[{cri}.containerd.runtimes.runc.options]
  SystemdCgroup = {"true" if v2 else "false"}
[{cri}.containerd.runtimes.runsc]
  runtime_type = "io.containerd.runsc.v1"
[{cri}.containerd.runtimes.runsc.options]
  TypeUrl = "io.containerd.runsc.v1.options"
  ConfigPath = "/etc/containerd/runsc.toml"
"""


def kubelet_patch(*, v2: bool) -> dict[str, Any]:
    """The kubelet's settings: as many pods as the density tests want, and what a machine without all rights needs."""
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
    }


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


def kind_config(*, workers: int, v2: bool) -> dict[str, Any]:
    """The whole configuration for `kind create cluster --config`."""
    mounts = [
        {"hostPath": str(BIN / "runsc"), "containerPath": "/usr/local/bin/runsc", "readOnly": True},
        {
            "hostPath": str(BIN / "containerd-shim-runsc-v1"),
            "containerPath": "/usr/local/bin/containerd-shim-runsc-v1",
            "readOnly": True,
        },
        {
            "hostPath": str(STATE / "runsc.toml"),
            "containerPath": "/etc/containerd/runsc.toml",
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
        "containerdConfigPatches": [containerd_patch(v2=v2)],
        "kubeadmConfigPatches": [json.dumps(kubelet_patch(v2=v2)), json.dumps(cluster_patch())],
    }
