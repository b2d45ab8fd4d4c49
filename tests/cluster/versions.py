"""Every version that the test cluster is made of, in one place."""

from __future__ import annotations

from dataclasses import dataclass

KUBERNETES = "1.36.3"
GVISOR = "v0.0.0-20260905035102-160fafc42237"

KIND_NODE_IMAGE = f"docker.io/kindest/node:v{KUBERNETES}"

# What the machine needs from Debian besides Go: name of the program that shows it is there, and its package.
HOST_PACKAGES = {
    "podman": "podman",
    "conmon": "conmon",
    "/usr/lib/podman/netavark": "netavark",
    "/usr/lib/podman/aardvark-dns": "aardvark-dns",
    "runc": "runc",
    "mmdebstrap": "mmdebstrap",
    "nft": "nftables",
    "iptables": "iptables",
    "ip": "iproute2",
    "conntrack": "conntrack",
    "nsenter": "util-linux",
    "gcc": "gcc",
    "skopeo": "skopeo",
}

# What the tests of the web console need: likewise.
BROWSER_PACKAGES = {
    "/usr/bin/chromium": "chromium",
    "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf": "fonts-dejavu-core",
}

NODE_PACKAGES = (
    "systemd",
    "conntrack",
    "iptables",
    "nftables",
    "iproute2",
    "ethtool",
    "util-linux",
    "mount",
    "kmod",
    "libseccomp2",
    "socat",
    "bash",
    "ca-certificates",
    "jq",
    "netbase",
    "procps",
    "runc",
)


@dataclass(frozen=True, kw_only=True)
class GoModule:
    """A Go module and the programs that are built from it: name of the program to package in the module."""

    path: str
    version: str
    programs: dict[str, str]


def _programs(prefix: str, names: str) -> dict[str, str]:
    return {name: f"{prefix}/{name}" for name in names.split()}


MODULES: dict[str, GoModule] = {
    "k8s": GoModule(
        path="k8s.io/kubernetes",
        version=f"v{KUBERNETES}",
        programs=_programs(
            "k8s.io/kubernetes/cmd",
            "kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl kubeadm",
        ),
    ),
    "containerd": GoModule(
        path="github.com/containerd/containerd/v2",
        version="v2.4.2",
        programs=_programs(
            "github.com/containerd/containerd/v2/cmd", "containerd containerd-shim-runc-v2 ctr"
        ),
    ),
    "etcd": GoModule(
        path="go.etcd.io/etcd/server/v3", version="v3.6.16", programs={"etcd": "go.etcd.io/etcd/server/v3"}
    ),
    "cni": GoModule(
        path="github.com/containernetworking/plugins",
        version="v1.9.1",
        programs={
            f"cni-{package.rsplit('/', 1)[1]}": f"github.com/containernetworking/plugins/plugins/{package}"
            for package in ("main/bridge", "main/loopback", "main/ptp", "ipam/host-local", "meta/portmap")
        },
    ),
    "coredns": GoModule(
        path="github.com/coredns/coredns",
        version="v1.15.0",
        programs={"coredns": "github.com/coredns/coredns"},
    ),
    "helm": GoModule(path="helm.sh/helm/v4", version="v4.3.1", programs={"helm": "helm.sh/helm/v4/cmd/helm"}),
    "kwok": GoModule(
        path="sigs.k8s.io/kwok", version="v0.8.0", programs={"kwok": "sigs.k8s.io/kwok/cmd/kwok"}
    ),
    "registry": GoModule(
        path="github.com/distribution/distribution/v3",
        version="v3.1.2",
        programs={"registry": "github.com/distribution/distribution/v3/cmd/registry"},
    ),
    "gvisor": GoModule(
        path="gvisor.dev/gvisor",
        version=GVISOR,
        programs={"runsc": "gvisor.dev/gvisor/runsc", "containerd-shim-runsc-v1": "gvisor.dev/gvisor/shim"},
    ),
    "kind": GoModule(path="sigs.k8s.io/kind", version="v0.33.0", programs={"kind": "sigs.k8s.io/kind"}),
    "cri-tools": GoModule(
        path="sigs.k8s.io/cri-tools",
        version="v1.36.0",
        programs={"crictl": "sigs.k8s.io/cri-tools/cmd/crictl"},
    ),
    "network-policies": GoModule(
        path="sigs.k8s.io/kube-network-policies",
        version="v1.1.0",
        programs={
            "kube-network-policies": "sigs.k8s.io/kube-network-policies/cmd/kube-network-policies/standard"
        },
    ),
}

# Programs that only tests of the chart run: neither the cluster nor its node image waits for them.
CHART_MODULES: dict[str, GoModule] = {
    "traefik": GoModule(
        path="github.com/traefik/traefik/v3",
        version="v3.7.13",
        programs={"traefik": "github.com/traefik/traefik/v3/cmd/traefik"},
    ),
}

# The S3 server that tests of checkpoints run, Apache-licensed; `python -m tests.s3` builds it.
S3_MODULES: dict[str, GoModule] = {
    "versitygw": GoModule(
        path="github.com/versity/versitygw",
        version="v1.8.0",
        programs={"versitygw": "github.com/versity/versitygw/cmd/versitygw"},
    ),
}

# Definitions of the Gateway API, for Traefik, in the version that its go.mod requires.
GATEWAY_API = GoModule(path="sigs.k8s.io/gateway-api", version="v1.6.1", programs={})
