"""`sandlot backup` and `sandlot restore` on a real API server: what comes back, twice, and into an installation made anew."""

from __future__ import annotations

import json
import tarfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sandlot.cli.cluster.backup import archive
from sandlot.cli.cluster.backup.items import Item, Kept
from sandlot.cli.cluster.release import Release as Named
from sandlot_gateway.core.usage import day_of

from tests.chart.filled_release import NUMPY, RUN, filled, forget, inside, opaque_secret, resource
from tests.chart.programs import add_node, ask, command_of, items_of, running, until, variables_of
from tests.chart.release import Release
from tests.chart.test_cluster_doctor import sandlot

__all__ = ["filled"]

VALUES: dict[str, Any] = {
    "pools": {"default": {"size": 2, "template": {"image": "python:3.12"}}},
    "gateway": {"replicas": 1},
    "sandboxes": {"pods": {"imagePullSecrets": ["pull"]}},
}
TRACED = VALUES | {
    "gateway": {"tracing": {"endpoint": "http://collector:4318", "headersSecret": "collector"}}
}


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


def hostile(path: Path, **changed: Any) -> Path:
    """The backup with other content, and digests that fit."""
    made = path.with_name("hostile")
    with made.open("wb") as file:
        archive.write(file, replace(archive.read(path), **changed))
    return made


@pytest.mark.parametrize("release", [TRACED], ids=["pool"], indirect=True)
def test_a_restore_creates_what_is_missing_and_keeps_what_has_changed(
    filled: Release, tmp_path: Path
) -> None:
    path, plain = tmp_path / "backup.tar.gz", tmp_path / "plain.tar.gz"
    secrets = f"/api/v1/namespaces/{filled.namespace}/secrets"
    filled.server.call("POST", secrets, opaque_secret("collector"))
    record = f"{secrets}/sh.helm.release.v1.{filled.name}.v1"
    timed_out = {"metadata": {"labels": {"status": "failed"}}}
    filled.server.call("PATCH", record, timed_out, content_type="application/merge-patch+json")
    run(filled, "backup", str(path), "--with-secrets")
    assert path.stat().st_mode & 0o777 == 0o600
    said = run(filled, "backup", str(plain))
    assert "newest revision, which is failed" in said
    (lacking,) = [line for line in said.splitlines() if line.startswith("not included: Secrets ")]
    for name in ("collector", f"{filled.fullname}-api-key"):
        assert f"{filled.namespace}/{name}" in lacking
    with tarfile.open(plain) as tar:
        texts = [file.read().decode() for one in tar if (file := tar.extractfile(one)) is not None]
    values = [value for data in filled.secrets().values() for value in data.values()]
    assert [value for value in values if any(value in text for text in texts)] == []
    assert document(path, "values.json")["pools"] == VALUES["pools"]

    day = day_of(time.time())
    everything = {
        f"secret {filled.fullname}-master",
        "secret collector",
        "secret pull",
        f"secret {filled.fullname}-api-key",
        f"usage sandlot-usage-{day}-records",
        f"run {RUN}",
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
    leases = f"{inside(filled, 'configmaps', '/api/v1')}/{RUN}"
    filled.server.call("DELETE", leases)
    missing = {
        f"run {RUN}": "created",
        "pool numpy": "created",
        f"usage sandlot-usage-{day}-records": "created",
    }
    assert did(filled, str(path), "--dry-run") == dict.fromkeys(everything, "unchanged") | missing
    assert filled.get(pool) is None
    assert did(filled, str(path)) == dict.fromkeys(everything, "unchanged") | missing
    assert filled.server.call("GET", usage)["binaryData"] == before["binaryData"]
    # It begins a grace, and one that is there stays, whatever the backup has.
    begun = filled.server.call("GET", leases)
    assert json.loads(begun["data"]["lease"])["renewed_at"] > time.time() - 3600
    assert did(filled, str(path), "--overwrite") == dict.fromkeys(everything, "unchanged")
    assert filled.server.call("GET", leases)["data"] == begun["data"]
    restored = filled.server.call("GET", pool)
    assert {name: restored["spec"][name] for name in NUMPY}["owner"] == "training"

    filled.server.call("PUT", pool, restored | {"spec": restored["spec"] | {"size": 7}})
    kept = dict.fromkeys(everything, "unchanged") | {"pool numpy": "kept"}
    assert did(filled, str(path), code=1) == kept
    assert filled.server.call("GET", pool)["spec"]["size"] == 7
    assert did(filled, str(path), "--overwrite")["pool numpy"] == "replaced"
    assert filled.server.call("GET", pool)["spec"]["size"] == 1

    # A key that was removed since the backup comes back only on demand.
    new = opaque_secret("collector", "new")
    filled.server.call("PUT", f"{secrets}/collector", new)
    assert did(filled, str(path), "--overwrite", code=1)["secret collector"] == "kept"
    assert filled.server.call("GET", f"{secrets}/collector")["data"] == new["data"]
    assert did(filled, str(path), "--overwrite", "--only-secrets")["secret collector"] == "replaced"

    foreign = filled.server.call("GET", usage)
    del foreign["metadata"]["labels"], foreign["binaryData"]
    filled.server.call("PUT", usage, foreign)
    refused = did(filled, str(path), "--overwrite", code=1)
    assert refused[f"usage sandlot-usage-{day}-records"] == "failed"

    bad = resource("SandboxPool", "bad", NUMPY | {"\x1b[2J": 1})
    bad["metadata"]["namespace"] = filled.sandboxes
    said = run(filled, "restore", str(hostile(path, items=(Item(Kept.POOL, bad),))), "--dry-run", code=1)
    assert "stored without spec.?[2J" in said

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
    unnamed = sandlot("restore", str(path), "--only-secrets", "--kubeconfig", str(filled.kubeconfig))
    assert (unnamed.returncode, "name it with --namespace" in unnamed.stderr) == (2, True)
    alien: dict[str, Any] = opaque_secret("alien") | {"apiVersion": "v1", "kind": "Secret"}
    alien["metadata"]["namespace"] = "default"
    named = Named(filled.name, filled.namespace, "default")
    aimed = hostile(path, release=named, items=(Item(Kept.SECRET, alien),))
    assert did(filled, str(aimed), "--only-secrets") == {"secret alien": "later"}
    assert filled.get("/api/v1/namespaces/default/secrets/alien") is None
    before = did(filled, str(path), "--only-secrets")
    assert before == {f"secret {name}": "created" for name in keys} | {"secret pull": "later"}
    assert filled.secrets() == keys
    values = tmp_path / "values.json"
    values.write_text(json.dumps(document(path, "values.json")))
    replace(filled, values={}).run("install", "--values", str(values))
    assert filled.secrets() == keys
    states = did(filled, str(path))
    assert {name: states[name] for name in ("pool default", "pool numpy", "secret pull")} == {
        "pool default": "unchanged",
        "pool numpy": "created",
        "secret pull": "created",
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
        _, held = ask("GET", f"{url}/api/v1/runs/grpo-7")
        assert (held["state"], held["epoch"], held["holder"]) == ("ACTIVE", 3, "n1:7")
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
