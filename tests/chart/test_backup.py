"""`sandlot backup` and `sandlot restore` on a real API server: what comes back, twice, and into an installation made anew."""

from __future__ import annotations

import base64
import json
import tarfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sandlot_contract.names import APP, LABEL_COMPONENT, LABEL_NAME, LABEL_USAGE_DAY, USAGE_COMPONENT
from sandlot_gateway.backends.kubernetes.usage_store import pack
from sandlot_gateway.core.usage import Amounts, Document, Key, Totals, day_of

from tests.chart.programs import add_node, ask, command_of, items_of, running, until, variables_of
from tests.chart.release import Release
from tests.chart.test_cluster_doctor import sandlot

OURS = "/apis/sandlot.dev/v1alpha1"
NUMPY = {"template": {"image": "numpy:1"}, "size": 1, "owner": "training", "reuse": {"policy": "never"}}
VALUES = {"pools": {"default": {"size": 2, "template": {"image": "python:3.12"}}}, "gateway": {"replicas": 1}}


def inside(release: Release, plural: str, base: str = OURS) -> str:
    return f"{base}/namespaces/{release.sandboxes}/{plural}"


def fill(release: Release) -> None:
    """What operators, users and gateways make in a running installation."""
    call = release.server.call
    call("POST", inside(release, "sandboxpools"), _ours("SandboxPool", "numpy", NUMPY))
    warmup = {"tenant": "training", "images": [{"name": "numpy:1"}]}
    call("POST", inside(release, "imagewarmups"), _ours("ImageWarmup", "warmup-1", warmup))
    sandbox = {"template": {"image": "numpy:1"}, "podName": "i-0123456789abcdef", "sandboxId": "sbx-1"}
    call("POST", inside(release, "sandboxes"), _ours("Sandbox", "sbx-1", sandbox))
    totals, day = Totals(), day_of(time.time())
    totals.add(Key(int(time.time() // 3600), "training", "grpo-7"), Amounts(3, 60.0, 120.0, 60.0, 300.0, 0.0))
    sums = base64.b64encode(pack(Document().plus(totals, marks=[1]))).decode()
    labels = {LABEL_NAME: APP, LABEL_COMPONENT: USAGE_COMPONENT, LABEL_USAGE_DAY: str(day)}
    body = {
        "metadata": {"name": f"sandlot-usage-{day}-records", "labels": labels},
        "binaryData": {"sums": sums},
    }
    call("POST", inside(release, "configmaps", "/api/v1"), body)


def _ours(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "sandlot.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def run(release: Release, *words: str, code: int = 0) -> str:
    done = sandlot(*words, "--kubeconfig", str(release.kubeconfig), "--namespace", release.namespace)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def did(release: Release, *words: str, code: int = 0) -> dict[str, str]:
    """What a restore did, by kind and name."""
    found = json.loads(run(release, "restore", *words, "--json", code=code).splitlines()[0])
    return {
        f"{each['resource'].split('/')[0].split()[0]} {each['resource'].split('/')[1]}": each["did"]
        for each in found["resources"]
    }


def document(path: Path, name: str) -> Any:
    with tarfile.open(path) as tar:
        member = tar.extractfile(name)
        assert member is not None
        return json.load(member)


def forget(release: Release) -> None:
    """Delete what the namespace controller would, which does not run here."""
    for path in (
        inside(release, "sandboxpools"),
        inside(release, "imagewarmups"),
        inside(release, "sandboxes"),
        inside(release, "configmaps", "/api/v1"),
    ):
        release.server.call("DELETE", path)


@pytest.fixture
def filled(release: Release) -> Iterator[Release]:
    fill(release)
    try:
        yield release
    finally:
        forget(release)


@pytest.mark.parametrize("release", [VALUES], ids=["pool"], indirect=True)
def test_a_restore_creates_what_is_missing_and_keeps_what_has_changed(
    filled: Release, tmp_path: Path
) -> None:
    path, plain = tmp_path / "backup.tar.gz", tmp_path / "plain.tar.gz"
    run(filled, "backup", str(path), "--with-secrets")
    assert path.stat().st_mode & 0o777 == 0o600
    said = run(filled, "backup", str(plain))
    assert f"not included: Secrets {filled.namespace}/{filled.fullname}-api-key" in said
    with tarfile.open(plain) as tar:
        texts = [file.read().decode() for one in tar if (file := tar.extractfile(one)) is not None]
    values = [value for data in filled.secrets().values() for value in data.values()]
    assert [value for value in values if any(value in text for text in texts)] == []
    assert document(path, "values.json")["pools"] == VALUES["pools"]

    day = day_of(time.time())
    everything = {
        f"secret {filled.fullname}-master",
        f"secret {filled.fullname}-api-key",
        f"usage sandlot-usage-{day}-records",
        "pool default",
        "pool numpy",
        "warm-up warmup-1",
    }
    assert did(filled, str(path)) == dict.fromkeys(everything, "unchanged")

    usage = f"{inside(filled, 'configmaps', '/api/v1')}/sandlot-usage-{day}-records"
    before = filled.server.call("GET", usage)
    pool = f"{inside(filled, 'sandboxpools')}/numpy"
    filled.server.call("DELETE", usage)
    filled.server.call("DELETE", pool)
    missing = {"pool numpy": "created", f"usage sandlot-usage-{day}-records": "created"}
    assert did(filled, str(path), "--dry-run") == dict.fromkeys(everything, "unchanged") | missing
    assert filled.get(pool) is None
    assert did(filled, str(path)) == dict.fromkeys(everything, "unchanged") | missing
    assert filled.server.call("GET", usage)["binaryData"] == before["binaryData"]
    restored = filled.server.call("GET", pool)
    assert {name: restored["spec"][name] for name in NUMPY}["owner"] == "training"

    filled.server.call("PUT", pool, restored | {"spec": restored["spec"] | {"size": 7}})
    kept = dict.fromkeys(everything, "unchanged") | {"pool numpy": "kept"}
    assert did(filled, str(path), code=1) == kept
    assert filled.server.call("GET", pool)["spec"]["size"] == 7
    assert did(filled, str(path), "--overwrite")["pool numpy"] == "replaced"
    assert filled.server.call("GET", pool)["spec"]["size"] == 1

    assert "--release is other" in run(filled, "restore", str(path), "--release", "other", code=2)


@pytest.mark.parametrize("release", [VALUES], ids=["pool"], indirect=True)
def test_an_installation_made_anew_has_its_keys_pools_and_usage(
    filled: Release, tmp_path: Path, directory: Path
) -> None:
    path = tmp_path / "backup.tar.gz"
    run(filled, "backup", str(path), "--with-secrets")
    keys = filled.secrets()
    forget(filled)
    filled.run("uninstall")
    filled.end_namespace()
    for name in keys:
        filled.server.call("DELETE", f"/api/v1/namespaces/{filled.namespace}/secrets/{name}")

    assert "which is not installed here" in run(filled, "restore", str(path), code=2)
    assert set(did(filled, str(path), "--only-secrets").values()) == {"created"}
    assert filled.secrets() == keys
    values = tmp_path / "values.json"
    values.write_text(json.dumps(document(path, "values.json")))
    replace(filled, values={}).run("install", "--values", str(values))
    assert filled.secrets() == keys
    states = did(filled, str(path))
    assert {name: states[name] for name in ("pool default", "pool numpy")} == {
        "pool default": "unchanged",
        "pool numpy": "created",
    }
    assert "failed" not in states.values()
    assert items_of(filled, "sandboxes") == []

    variables = variables_of(filled, "gateway", directory)
    url = f"http://127.0.0.1:{variables['SANDLOT_PORT']}"
    with running(command_of(filled, "gateway"), log=directory / "log", variables=variables) as gateway:
        until(gateway, lambda: ask("GET", f"{url}/readyz")[0], lambda status: status == 200)
        assert set(did(filled, str(path)).values()) == {"unchanged"}
        # Its sandbox went with its pod: no caller waits for it.
        until(gateway, lambda: ask("GET", f"{url}/api/v1/sandbox/sbx-1")[0], lambda status: status == 404)
        _, pools = ask("GET", f"{url}/api/v1/pools")
        assert {each["name"] for each in pools["pools"]} == {"default", "numpy"}
        _, used = ask("GET", f"{url}/api/v1/usage?tenant=training")
        (row,) = used["usage"]
        assert (row["run"], row["sandboxes"], row["core_seconds"]) == ("grpo-7", 3, 120.0)

    add_node(filled.server, filled.name)
    variables = variables_of(filled, "controller", directory)
    try:
        with running(
            command_of(filled, "controller"), log=directory / "log", variables=variables
        ) as controller:
            made = until(controller, lambda: _pods(filled), lambda found: len(found) == 3)
    finally:
        for pod in _pods(filled):
            path = f"{inside(filled, 'pods', '/api/v1')}/{pod['metadata']['name']}"
            filled.server.call("DELETE", path, {"gracePeriodSeconds": 0})
        filled.server.call("DELETE", f"/api/v1/nodes/{filled.name}")
    assert {pod["metadata"]["labels"]["sandlot.dev/pool"] for pod in made} == {"default", "numpy"}


def _pods(release: Release) -> list[dict[str, Any]]:
    return items_of(release, "pods", group="/api/v1")
