"""`sandlot doctor --cluster` and `support-bundle` on a real release: all is well, then a RuntimeClass is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.complaints import WARNINGS_SHOWN, assert_no_complaints
from tests.kubernetes.boxes import POOLED, filled, until
from tests.kubernetes.releases import release_of_its_own
from tests.kubernetes.stack import IMAGE, Stack, program

SIZE = 1
VALUES = {
    "pools": {"default": {"size": SIZE, "template": {"image": IMAGE, **POOLED}}},
    "gateway.replicas": 1,
    "controller.replicas": 1,
}


@pytest.fixture(scope="module")
def healthy() -> Iterator[Stack]:
    with release_of_its_own("doctor", runtime="runc") as stack:
        stack.install("--set-json", ",".join(f"{name}={json.dumps(value)}" for name, value in VALUES.items()))
        filled(stack, size=SIZE)
        yield stack


def sandlot(stack: Stack, *words: str, directory: Path) -> subprocess.CompletedProcess[str]:
    context = ("--context", stack.context) if stack.context else ()
    where = ("--kubeconfig", stack.kubeconfig, *context, "--namespace", stack.namespace)
    path = f"{Path(program('kubectl')).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-m", "sandlot", *words, *where],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=directory,
        env={**os.environ, "PATH": path, "SANDLOT_API_KEY": stack.api_key, **WARNINGS_SHOWN},
    )
    assert_no_complaints(done.stderr)
    return done


def findings(stack: Stack, directory: Path) -> tuple[int, dict[str, Any]]:
    done = sandlot(stack, "doctor", "--cluster", "--json", directory=directory)
    assert done.stdout, done.stderr
    return done.returncode, {each["name"]: each for each in json.loads(done.stdout)["checks"]}


def test_a_healthy_release_is_ok_throughout(healthy: Stack, tmp_path: Path) -> None:
    # A gateway's first probes and webhooks may still be under way.
    last: dict[str, Any] = {}

    def well() -> bool:
        nonlocal last
        code, last = findings(healthy, tmp_path)
        return code == 0 and all(each["state"] == "ok" for each in last.values())

    try:
        until(well, seconds=120)
    except AssertionError:
        pytest.fail(json.dumps([each for each in last.values() if each["state"] != "ok"], indent=1))
    gateways = [each["detail"] for name, each in last.items() if name.startswith("gateway ")]
    assert len(gateways) == 1
    assert "webhooks of sidecars and knows the pools' ready pods" in gateways[0]
    assert last["webhooks of sidecars"]["detail"].startswith("the logs of 1 sidecars")
    assert "agree with the API server's" in last["clocks of the nodes"]["detail"]


def test_a_support_bundle_has_logs_and_metrics_and_no_key(healthy: Stack, tmp_path: Path) -> None:
    # A busy node may not answer for a log in time, and the list then says so.
    lacking = ""

    def whole() -> dict[str, str] | None:
        nonlocal lacking
        out = tmp_path / "bundle.tar.gz"
        out.unlink(missing_ok=True)
        done = sandlot(healthy, "support-bundle", "--out", str(out), directory=tmp_path)
        lacking = done.stderr
        assert done.returncode == 0
        with tarfile.open(out) as tar:
            files = {member.name.partition("/")[2]: tar.extractfile(member) for member in tar}
            found = {name: file.read().decode() for name, file in files.items() if file is not None}
        lacking = found["not-included.txt"]
        return found if lacking == "everything is included\n" else None

    try:
        found = until(whole, seconds=120)
    except AssertionError:
        pytest.fail(lacking)
    assert found is not None
    assert all(healthy.api_key not in text for text in found.values())
    kinds = {(name.split("/")[0], name.rpartition("/")[2].partition("-")[0]) for name in found if "/" in name}
    assert {("logs", "gateway.log"), ("logs", "controller.log"), ("logs", "sidecar.log")} <= kinds
    pages = {name: text for name, text in found.items() if name.startswith("metrics/")}
    assert any("sandlot_controller_leader 1.0" in text for text in pages.values())
    assert any("sandlot_ready_queue_depth" in text for text in pages.values())


def test_a_runtime_class_that_does_not_exist_is_named(healthy: Stack, tmp_path: Path) -> None:
    template = {"image": IMAGE, **POOLED, "runtimeClass": "nothing"}
    pool = {
        "apiVersion": "sandlot.dev/v1alpha1",
        "kind": "SandboxPool",
        "metadata": {"name": "broken", "namespace": healthy.sandboxes},
        "spec": {"size": 1, "template": template},
    }
    healthy.kubectl("apply", "-f", "-", stdin=json.dumps(pool))
    try:
        told: dict[str, Any] = {}

        def only_these() -> bool:
            nonlocal told
            told = wrong(healthy, tmp_path)
            return set(told) == {"pool broken", "runtime class nothing"}

        try:
            until(only_these, seconds=120)
        except AssertionError:
            pytest.fail(json.dumps(told, indent=1))
        assert "named by pool broken" in told["runtime class nothing"]["detail"]
        assert "nothing" in told["pool broken"]["detail"], "the API server's own reason"
    finally:
        healthy.kubectl("delete", "sandboxpool", "broken", "-n", healthy.sandboxes)


def wrong(stack: Stack, directory: Path) -> dict[str, Any]:
    """The problems of the release, without those of the nodes, which other tests use at the same time."""
    _, found = findings(stack, directory)
    problems = {name: each for name, each in found.items() if each["state"] == "problem"}
    shared = ("node ", "nodes", "other nodes", "clock of ")
    return {name: each for name, each in problems.items() if not name.startswith(shared)}
