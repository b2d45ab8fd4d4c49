"""Renders the chart with helm and finds things in what comes out."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

Resource = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "sandlot"
VERSION: str = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
RELEASE, NAMESPACE, SANDBOXES = "sandlot", "sandlot-system", "sandlot-sandboxes"
GATEWAY, CONTROLLER = "sandlot-gateway", "sandlot-controller"

# Every switch on, every list and mapping filled: what can be rendered is rendered.
TOLERATIONS = [{"key": "only", "operator": "Equal", "value": "us", "effect": "NoSchedule"}]
ALL: dict[str, Any] = {
    "commonLabels": {"team": "rl"},
    "image": {"registry": "registry.example/sandlot", "tag": "v9", "pullSecrets": ["pull"]},
    "gateway": {
        "config": {"publicUrl": "https://sandlot.example", "maxSandboxes": 5000, "drain": 60.5, "registries": ["*.example", "registry.corp:5000"]},
        "quotas": {"*": {"creates_per_second": 2.5, "gpus": 1}, "training": {"gpus": None, "memory_gb": 0.5, "creates_burst": 9}},
        "prices": {"currency": "EUR", "core_hour": 0.035, "gpu_hour": {"*": "1.5", "H100": "2.90"}},
        "checkpoints": {
            "claim": "kept",
            "s3": {
                "place": "s3://box/kept",
                "endpoint": "https://s3.example.com",
                "region": "eu-central-1",
                "credentialsSecret": "bucket",
            },
        },
        "registryCredentialsSecret": "registries",
        "eventWebhooksSecret": "event-webhooks",
        "secretRefs": {"enabled": True},
        "tls": {"existingSecret": "certificate"},
        "ssh": {"port": 22, "host": "ssh.sandlot.example"},
        "autoscaling": {"enabled": True},
        "antiAffinity": "hard",
        "service": {"type": "LoadBalancer", "port": 80, "tlsPort": 443, "annotations": {"example.com/internal": "true"}},
        "ingress": {
            "enabled": True,
            "className": "nginx",
            "hosts": ["sandlot.example", "*.sandlot.example"],
            "tlsSecret": "wildcard",
            "annotations": {"example.com/timeout": "3600"},
        },
        "httpRoute": {
            "enabled": True,
            "parentRefs": [{"name": "public", "namespace": "gateways", "sectionName": "https"}],
            "hosts": ["sandlot.example", "*.sandlot.example"],
            "timeout": "2h",
            "annotations": {"example.com/a": "b"},
        },
        "podAnnotations": {"example.com/a": "b"},
        "nodeSelector": {"pool": "system"},
        "tolerations": TOLERATIONS,
    },
    "controller": {
        "antiAffinity": "none",
        "podAnnotations": {"example.com/a": "b"},
        "nodeSelector": {"pool": "system"},
        "tolerations": TOLERATIONS,
    },
    "coreDNS": {"corefile": True},
    "sandboxes": {
        "dnsNames": True,
        "pods": {
            "imagePullPolicy": "Always",
            "imagePullSecrets": ["images"],
            "nodeSelector": {"pool": "sandboxes"},
            "tolerations": TOLERATIONS,
            "guaranteed": True,
        }
    },
    "slots": {"enabled": True},
    "sidecarTls": {"enabled": True},
    "nodeAgent": {
        "enabled": True,
        "containerd": {
            "snapshotter": "stargz",
            "runtimeHandler": "lazy",
            "snapshotterDirectories": ["/var/lib/containerd-stargz-grpc"],
        },
        "podAnnotations": {"example.com/a": "b"},
        "nodeSelector": {"pool": "sandboxes"},
        "tolerations": TOLERATIONS,
    },
    "registryCache": {
        "enabled": True,
        "image": "registry.example/distribution:3",
        "upstreams": [
            {"name": "hub", "host": "docker.io", "url": "https://registry-1.docker.io", "credentialsSecret": "hub"},
            {"name": "corp", "host": "registry.corp:5000", "url": "http://registry.corp:5000"},
        ],
        "size": "200Gi",
        "nodeCIDRs": ["10.89.0.0/24"],
        "egressPorts": [443, 8443],
        "podAnnotations": {"example.com/a": "b"},
        "nodeSelector": {"pool": "system"},
        "tolerations": TOLERATIONS,
    },
    "gvisor": {
        "nodeSelector": {"gvisor": "true"},
        "installer": {
            "enabled": True,
            "image": "registry.example/gvisor:1",
            "nodeSelector": {"gvisor": "true"},
            "tolerations": TOLERATIONS,
        },
    },
    "networkPolicy": {
        "dns": {"cidrs": ["169.254.20.10/32"]},
        "egress": {
            "internet": True,
            "apiServerCIDRs": ["203.0.113.7/32"],
            "pypi": True,
            "custom": [
                {"name": "mirror", "cidrs": ["10.1.2.0/24"], "ports": [443, 8443]},
                {"name": "lab", "cidrs": ["192.168.7.0/24", "2001:db8::/32"]},
            ],
        },
        "clients": [{"namespaceSelector": {"matchLabels": {"clients": "yes"}}}],
    },
    "pools": {
        "fixed": {"size": 4, "template": {"image": "python:3.12"}},
        "slots": {"size": 4, "template": {"cpu": 2}, "reuse": {"policy": "never", "maxUses": 7, "maxAge": 60}},
        "scaled": {
            "minSize": 2,
            "maxSize": 40,
            "template": {"image": "python:3.12", "cpu": 0.5, "memory": 2147483648, "runtimeClass": "gvisor"},
        },
    },
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "dashboards": {"enabled": True},
    "alerts": {
        "enabled": True,
        "runbookUrl": "https://docs.example/alerts.html",
        "labels": {"release": "prometheus"},
    },
}  # fmt: skip


def find_helm() -> Path | None:
    """Helm of the test cluster: of $SANDLOT_CLUSTER_BIN, else of its cache."""
    given = os.environ.get("SANDLOT_CLUSTER_BIN")
    path = (Path(given) if given else Path.home() / ".cache/sandlot-cluster/bin") / "helm"
    return path if os.access(path, os.X_OK) else None


def helm(*arguments: str, values: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
    """One run that leaves nothing in the home directory. Skips the test where helm is missing."""
    program = find_helm()
    if program is None:
        pytest.skip("needs helm of the test cluster (`make cluster` builds it)")
    with tempfile.TemporaryDirectory(prefix="sandlot-helm-") as home:
        file = Path(home) / "values.json"
        file.write_text(json.dumps(values or {}))
        homes = {f"HELM_{name}_HOME": f"{home}/{name}" for name in ("CACHE", "CONFIG", "DATA")}
        command = [str(program), *arguments, *(("--values", str(file)) if values is not None else ())]
        return subprocess.run(
            command, env=os.environ | homes, capture_output=True, text=True, timeout=200, check=False
        )


def render(
    values: dict[str, Any] | None = None,
    *,
    release: str = RELEASE,
    namespace: str = NAMESPACE,
    kubernetes: str = "1.36.0",
) -> list[Resource]:
    """All resources, each with the template it came from under `source`."""
    done = helm(
        "template", release, str(CHART), "-n", namespace, "--kube-version", kubernetes, values=values or {}
    )
    assert done.returncode == 0, done.stderr
    return list(_parse(done.stdout))


def refusal(values: dict[str, Any]) -> str:
    """What helm says to values that it must refuse."""
    done = helm("template", RELEASE, str(CHART), "-n", NAMESPACE, values=values)
    assert done.returncode != 0, "helm took these values"
    return done.stderr


def one(resources: list[Resource], kind: str, name: str, *, namespace: str | None = None) -> Resource:
    """`namespace`: where resources of this name are in several."""
    found = [
        each
        for each in resources
        if each["kind"] == kind
        and each["metadata"]["name"] == name
        and namespace in (None, each["metadata"].get("namespace"))
    ]
    assert len(found) == 1, f"{len(found)} {kind} {name}"
    return found[0]


def of_kind(resources: list[Resource], kind: str) -> list[Resource]:
    return [each for each in resources if each["kind"] == kind]


def environment(deployment: Resource) -> dict[str, str]:
    """Of its one container."""
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each["value"] for each in container["env"]}


def _parse(text: str) -> Iterator[Resource]:
    for part in text.split("\n---\n"):
        resource = yaml.safe_load(part)
        if resource is None:
            continue
        source = next(line for line in part.splitlines() if line.startswith("# Source: "))
        yield resource | {"source": source.removeprefix("# Source: sandlot/")}


def selected(selector: dict[str, str], labelled: dict[str, dict[str, str]]) -> set[str]:
    return {name for name, labels in labelled.items() if selector.items() <= labels.items()}
