"""Bad values are refused with the field's name; schema and table are what values.yaml says."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from sandlot_controller.settings import Settings as Controller
from sandlot_gateway.settings import Settings as Gateway
from sandlot_node.settings import Settings as NodeAgent

from tests.chart.render import CHART, ROOT, refusal, render


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"gatway": {"replicas": 3}}, "additional properties 'gatway' not allowed"),
        ({"gateway": {"replcas": 3}}, "at '/gateway': additional properties 'replcas' not allowed"),
        ({"gateway": {"replicas": "three"}}, "at '/gateway/replicas': got string, want integer"),
        ({"gateway": {"replicas": 0}}, "at '/gateway/replicas': minimum: got 0, want 1"),
        ({"gateway": {"replicas": 1000}}, "at '/gateway/replicas': maximum"),
        ({"gateway": {"antiAffinity": "medium"}}, "at '/gateway/antiAffinity': value must be one of"),
        ({"gateway": {"config": {"publicUrl": "sandlot.example"}}}, "at '/gateway/config/publicUrl'"),
        ({"gateway": {"config": {"accessLog": 2}}}, "at '/gateway/config/accessLog': maximum"),
        ({"gateway": {"config": {"startTimeout": 0}}}, "at '/gateway/config/startTimeout': exclusiveMinimum"),
        ({"gateway": {"resources": {"limits": {"memory": "1 GB"}}}}, "at '/gateway/resources/limits/memory'"),
        ({"gateway": {"service": {"port": 70000}}}, "at '/gateway/service/port'"),
        ({"gateway": {"ssh": {"port": -1}}}, "at '/gateway/ssh/port': minimum"),
        ({"gateway": {"ssh": {"host": "ssh://x"}}}, "at '/gateway/ssh/host'"),
        ({"gateway": {"quotas": {"t": {"cpus": 3}}}}, "at '/gateway/quotas/t': additional properties 'cpus' not allowed"),
        ({"gateway": {"prices": {"cpu_hour": "1"}}}, "at '/gateway/prices': additional properties 'cpu_hour' not allowed"),
        ({"gateway": {"prices": {"currency": "EUR", "core_hour": -1}}}, "at '/gateway/prices/core_hour': minimum: got -1, want 0"),
        ({"gateway": {"prices": {"currency": "EUR", "gpu_hour": {"H100": "1"}}}}, "at '/gateway/prices/gpu_hour': missing property '*'"),
        ({"gateway": {"prices": {"currency": "EUR", "core_hour": "9999999"}}}, "at '/gateway/prices/core_hour'"),
        ({"gateway": {"prices": {"currency": "EUR", "core_hour": 0.0000000001}}}, "at '/gateway/prices/core_hour': multipleOf"),
        ({"gateway": {"prices": {"currency": "EUR", "gpu_hour": {"*": "1", "": "1"}}}}, "at '/gateway/prices/gpu_hour': additional properties"),
        ({"gateway": {"prices": {"currency": "EUR", "gpu_hour": {"*": "1", "x" * 101: "1"}}}}, "at '/gateway/prices/gpu_hour': additional properties"),
        ({"gateway": {"prices": {"currency": "EUR", "gpu_hour": {"*": "1"} | {f"t{n}": "1" for n in range(100)}}}}, "at '/gateway/prices/gpu_hour': maxProperties"),
        ({"gateway": {"quotas": {"a b": {}}}}, "at '/gateway/quotas': additional properties 'a b' not allowed"),
        ({"gateway": {"tolerations": [{"keys": "x"}]}}, "at '/gateway/tolerations/0': additional properties 'keys'"),
        ({"image": {"pullPolicy": "Sometimes"}}, "at '/image/pullPolicy': value must be one of"),
        ({"image": {"pullSecrets": "pull"}}, "at '/image/pullSecrets': got string, want array"),
        ({"sandboxes": {"namespace": "Boxes"}}, "at '/sandboxes/namespace'"),
        ({"sandboxes": {"pods": {"cpuShare": 1.5}}}, "at '/sandboxes/pods/cpuShare': maximum"),
        ({"sandboxes": {"pods": {"nodeSelector": {"a": 1}}}}, "at '/sandboxes/pods/nodeSelector/a'"),
        ({"networkPolicy": {"egress": {"pypiCIDRs": []}}}, "at '/networkPolicy/egress/pypiCIDRs': minItems"),
        ({"networkPolicy": {"egress": {"apiServerCIDRs": ["::1/128"]}}}, "at '/networkPolicy/egress/apiServerCIDRs/0'"),
        ({"networkPolicy": {"egress": {"custom": [{"name": "x"}]}}}, "missing property 'cidrs'"),
        ({"networkPolicy": {"egress": {"custom": [{"name": "x", "cidrs": ["10.0.0.1"]}]}}}, "custom/0/cidrs/0"),
        ({"pools": {"p": {"size": 4}}}, "at '/pools/p': missing property 'template'"),
        ({"pools": {"p": {"size": 4, "template": {"image": ""}}}, "slots": {"enabled": True}}, "at '/pools/p/template/image': minLength"),
        ({"pools": {"p": {"size": 1, "owner": "a b", "template": {"image": "x"}}}}, "at '/pools/p/owner': 'a b' does not match"),
        ({"pools": {"p": {"size": -1, "template": {"image": "x"}}}}, "at '/pools/p/size': minimum"),
        ({"pools": {"A_b": {"size": 1, "template": {"image": "x"}}}}, "at '/pools': additional properties 'A_b' not allowed"),
        ({"gateway": {"runtimeClasses": ["kata", "a..b"]}}, "at '/gateway/runtimeClasses/1': 'a..b' does not match"),
        ({"gvisor": {"runtimeClass": "a.-b"}}, "at '/gvisor/runtimeClass': 'a.-b' does not match"),
        ({"gvisor": {"runtimeClass": "a" * 254}}, "at '/gvisor/runtimeClass': maxLength"),
        ({"serviceMonitor": {"interval": "often"}}, "at '/serviceMonitor/interval'"),
    ],
)  # fmt: skip
def test_the_schema_names_the_field(values: dict[str, Any], named: str) -> None:
    assert named in refusal(values)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (
            {"gateway": {"autoscaling": {"enabled": True, "min": 9}}},
            "gateway.autoscaling.min (9) exceeds",
        ),
        (
            {"pools": {"p": {"minSize": 3, "maxSize": 2, "template": {"image": "x"}}}},
            "pools.p.minSize (3) exceeds",
        ),
        *(
            (
                {"pools": {"p": {"template": {"image": "x"}} | sizes}},
                "pools.p: set either size, or minSize and maxSize",
            )
            for sizes in (
                {},
                {"minSize": 1},
                {"maxSize": 1},
                {"size": 1, "minSize": 1, "maxSize": 2},
                {"size": 1, "maxSize": 2},
            )
        ),
        ({"gvisor": {"installer": {"enabled": True}}}, "gvisor.installer.image is empty"),
        ({"pools": {"p": {"size": 1, "template": {}}}}, "pools.p.template.image is missing"),
        ({"slots": {"enabled": True}}, "slots.enabled needs nodeAgent.enabled"),
        (
            {"gateway": {"registryCredentialsSecret": "x"}, "nodeAgent": {"enabled": True}},
            "gateway.registryCredentialsSecret needs slots.enabled",
        ),
        (
            {"nodeAgent": {"enabled": True, "containerd": {"runtimeHandler": "lazy"}}},
            "nodeAgent.containerd.runtimeHandler needs nodeAgent.containerd.snapshotter",
        ),
        *(
            (
                {
                    "nodeAgent": {
                        "enabled": True,
                        "containerd": {"runtimeHandler": "lazy", "snapshotter": "stargz"},
                    },
                    "sandboxes": {"pods": {"imagePullPolicy": policy}},
                },
                "nodeAgent.containerd.runtimeHandler needs sandboxes.pods.imagePullPolicy=Always",
            )
            for policy in (None, "IfNotPresent", "Never")
        ),
        *(
            (
                {
                    "gateway": {"registryCredentialsSecret": "x"},
                    "nodeAgent": {"enabled": True},
                    "slots": {"enabled": True},
                    "sandboxes": {"pods": {"imagePullPolicy": policy}},
                },
                "gateway.registryCredentialsSecret needs sandboxes.pods.imagePullPolicy=Always",
            )
            for policy in (None, "IfNotPresent", "Never")
        ),
        (
            {"gateway": {"quotas": {"t": {"creates_burst": 3}}}},
            "gateway.quotas.t.creates_burst needs creates_per_second",
        ),
        ({"gateway": {"prices": {"core_hour": "1"}}}, "gateway.prices needs currency"),
        (
            {"commonLabels": {"app.kubernetes.io/name": "x"}},
            "commonLabels: app.kubernetes.io/name is one of the chart's selector labels",
        ),
        ({"sandboxes": {"namespace": "sandlot-system"}}, "sandboxes.namespace is the release's own"),
        (
            {"gateway": {"secretRefs": {"enabled": True, "namespace": "sandlot-system"}}},
            "gateway.secretRefs: its namespace is the release's, sandlot-system",
        ),
        (
            {"networkPolicy": {"egress": {"custom": [{"name": "all", "cidrs": ["0.0.0.0/0"]}]}}},
            "networkPolicy.egress.custom, rule all: 0.0.0.0/0 contains the metadata address",
        ),
        (
            {"networkPolicy": {"egress": {"pypi": True, "pypiCIDRs": ["151.101.0.0/16", "169.254.0.0/16"]}}},
            "networkPolicy.egress.pypiCIDRs: 169.254.0.0/16 contains the metadata address",
        ),
        (
            {"networkPolicy": {"dns": {"cidrs": ["169.254.169.254/32"]}}},
            "networkPolicy.dns.cidrs: 169.254.169.254/32 contains the metadata address",
        ),
        (
            {"networkPolicy": {"egress": {"custom": [{"name": "x", "cidrs": ["10.0.0.300/32"]}]}}},
            "10.0.0.300/32 is not an IPv4 block",
        ),
        (
            {"networkPolicy": {"egress": {"custom": [{"name": "six", "cidrs": ["::/0"]}]}}},
            "rule six: ::/0 is not an IPv6 block, or so wide that it may contain a metadata address",
        ),
    ],
)
def test_what_a_schema_cannot_say_is_refused_too(values: dict[str, Any], named: str) -> None:
    assert named in refusal(values)


@pytest.mark.parametrize(
    "cidr", ["169.254.169.253/32", "169.254.20.10/32", "168.0.0.0/8", "170.0.0.0/7", "10.0.0.0/8"]
)
def test_neighbours_of_the_metadata_address_are_no_offence(cidr: str) -> None:
    assert render({"networkPolicy": {"egress": {"custom": [{"name": "x", "cidrs": [cidr]}]}}})


def test_a_default_label_can_be_taken_away() -> None:
    (policy,) = [
        each
        for each in render({"networkPolicy": {"dns": {"podLabels": {"k8s-app": None, "dns": "ours"}}}})
        if each["kind"] == "NetworkPolicy" and each["metadata"]["name"] == "dns"
    ]
    (rule,) = policy["spec"]["egress"]
    assert rule["to"][0]["podSelector"] == {"matchLabels": {"dns": "ours"}}


def test_part_of_a_bigger_chart() -> None:
    """Helm hands `global` to every chart that is a part of another one."""
    assert render({"global": {"anything": 1}})


@pytest.mark.parametrize(
    ("section", "settings"),
    [
        ("gateway.config", Gateway),
        ("controller.config", Controller),
        ("sandboxes.pods", Controller),
        ("nodeAgent.config", NodeAgent),
    ],
)
def test_defaults_and_bounds_are_the_programs(section: str, settings: Any) -> None:
    """`maxStarts` differs: the program's default is for one machine's cores; `leave`: nobody stands in front of a local one."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    for part in section.split("."):
        schema = schema["properties"][part]
    for camel, rules in schema["properties"].items():
        name = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in camel)
        field = settings.model_fields[name]
        if camel not in ("maxStarts", "leave"):
            assert rules["default"] == field.get_default(call_default_factory=True), camel
        bounds = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
        theirs = {
            bounds[key]: getattr(limit, key)
            for limit in field.metadata
            for key in bounds
            if getattr(limit, key, None) is not None
        }
        assert {key: rules[key] for key in bounds.values() if key in rules} == theirs, camel


def test_schema_and_table_are_what_values_yaml_says() -> None:
    done = _docs("--check")
    assert done.returncode == 0, done.stderr


def test_drift_is_named_and_mended(tmp_path: Path) -> None:
    chart = tmp_path / "sandlot"
    shutil.copytree(CHART, chart)
    values = chart / "values.yaml"
    values.write_text(values.read_text().replace("  replicas: 2\n", "  replicas: 3\n", 1))
    done = _docs("--check", "--chart", str(chart))
    assert done.returncode == 1
    assert "values.schema.json differs from values.yaml and the CRDs" in done.stderr
    assert "README.md differs from values.yaml and the CRDs" in done.stderr
    assert _docs("--chart", str(chart)).returncode == 0
    assert _docs("--check", "--chart", str(chart)).returncode == 0
    assert "| `gateway.replicas` | `3` |" in (chart / "README.md").read_text()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("a: 1\n", "a has no description; add a comment above it"),
        ("# Text.\na: null\n", "a: null has no type"),
        ("# Text.\na: []\n", "a: the list has no item type"),
        ("# Text.\na: {}\n", "a: the mapping has no value type"),
        ("# Text.\n# @schema {kind: unheard}\na: 1\n", "a: unknown kind 'unheard'; use one of"),
        ("# Text.\n# @schema minimum=1\na: 1\n", "a: cannot read"),
    ],
)
def test_values_that_are_no_source_are_named(text: str, named: str, tmp_path: Path) -> None:
    shutil.copy(CHART / "README.md", tmp_path)
    shutil.copytree(CHART / "crds", tmp_path / "crds")
    (tmp_path / "values.yaml").write_text(text)
    done = _docs("--chart", str(tmp_path))
    assert done.returncode == 1
    assert named in done.stderr


def test_every_default_is_in_the_table() -> None:
    table = (CHART / "README.md").read_text()

    def paths(values: dict[str, Any], prefix: str = "") -> None:
        for key, value in values.items():
            path = f"{prefix}{key}"
            if f"| `{path}` | `{json.dumps(value)}` |" in table:
                continue
            assert isinstance(value, dict), f"{path} is not in the table"
            assert value, f"{path} is not in the table"
            paths(value, f"{path}.")

    paths(yaml.safe_load((CHART / "values.yaml").read_text()))


def _docs(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "chart_docs.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
