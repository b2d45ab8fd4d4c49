"""A release's life with sandboxes in it: upgraded from the chart before, rolled back, taken away."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sandlot import Client, Sandbox

from tests.kubernetes.boxes import POOLED, filled, resource_of, resources, until, warm
from tests.kubernetes.killing import warm_everywhere
from tests.kubernetes.releases import release_of_its_own
from tests.kubernetes.stack import CHART, IMAGE, Stack
from tests.kubernetes.upgrades import (
    LONG,
    ROLLED,
    check_all_lives,
    gateways,
    goes_on,
    identity,
    once_and_whole,
    stopped_at_the_end,
    words,
)

SIZE = 1
VALUES = {
    "pools": {"default": {"size": SIZE, "template": {"image": IMAGE, **POOLED}}},
    "gateway.config": {"drain": 1},  # less than what runs takes: its connection drops
}


def chart_before(directory: Path) -> Path:
    """As the last commit but one left it that changed the chart."""
    root = CHART.parents[1]
    log = ["git", "log", "-n", "2", "--format=%H", "--", "charts/sandlot/templates", "charts/sandlot/crds"]
    commits = subprocess.run(log, cwd=root, capture_output=True, text=True, check=False).stdout.split()
    if len(commits) < 2:
        pytest.skip("needs the repository's history")
    archive = ["git", "archive", commits[1], "charts/sandlot"]
    packed = subprocess.run(archive, cwd=root, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(directory)], input=packed, check=True)
    return directory / "charts" / "sandlot"


@pytest.fixture(scope="module")
def life() -> Iterator[Stack]:
    with release_of_its_own("life", runtime="runc") as stack:
        yield stack


def secrets(stack: Stack) -> dict[str, Any]:
    found = stack.get("secrets", "-n", stack.namespace)["items"]
    return {each["metadata"]["name"]: each["data"] for each in found if each["type"] == "Opaque"}


@pytest.mark.timeout(1800)  # an installation, an upgrade and a rollback
def test_upgrade_and_rollback_lose_no_sandbox_and_no_command(life: Stack, tmp_path: Path) -> None:
    # The definitions belong to the whole cluster, of which another release may be in use: the older ones stay away.
    life.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CHART / "crds"))
    life.install(*words(VALUES), "--skip-crds", chart=chart_before(tmp_path))
    filled(life, size=SIZE)
    first = secrets(life)
    assert len(first) == 2
    url, key = life.url, life.api_key
    with ThreadPoolExecutor(1) as thread, Client(url=url, api_key=key) as client:
        boxes = [
            warm(client),
            Sandbox.create(IMAGE, client=client, cpu=0.5, memory=128 << 20, disk=256 << 20, wait=240),
        ]
        for box in boxes:
            box.files.write("/mine", box.id.encode())
            box.start("sleep 3600", detach=True, op_id="background")
        before = [identity(life, box) for box in boxes]
        running = thread.submit(boxes[0].exec, LONG, timeout=1200)
        with stopped_at_the_end(boxes[0]):
            until(lambda: boxes[0].exec("test -s /count", timeout=30).ok)
            pods = gateways(life)

            # As the chart's README says.
            life.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CHART / "crds"))
            life.install(*words(VALUES, ROLLED))
            check_all_lives(life, client, boxes, before)
            assert secrets(life) == first
            upgraded = gateways(life)
            assert not upgraded & pods, "the gateways were to be replaced"
            goes_on(running)

            life.helm("rollback", life.release, "1", "-n", life.namespace, "--wait", "--timeout", "8m")
            check_all_lives(life, client, boxes, before)
            assert secrets(life) == first
            assert not gateways(life) & upgraded
            goes_on(running)
        once_and_whole(boxes[0], running.result(timeout=240))


def test_an_uninstall_leaves_what_it_says_and_nothing_else(life: Stack) -> None:
    """With sandboxes of every kind in it, which must not hold it up. Helm never deletes a chart's CRDs."""
    life.install(*words(VALUES))
    # One that a controller of the chart before has made is not the chart's.
    life.kubectl("delete", "lease", "--all", "-n", life.namespace)
    life.install(*words(VALUES))
    filled(life, size=SIZE)
    with Client(url=life.url, api_key=life.api_key) as client:
        warm(client)
        warm_everywhere(life, size=SIZE)  # else a cold start that is not needed has a record of the next one
        ended = warm(client)
        assert ended.info.pool_hit
        resource_of(life, ended)  # in a pod that is reused, one that ends before has no record
        ended.delete()
    until(
        lambda: (
            {"Running", "Ended"}
            <= {each.get("status", {}).get("phase") or each["spec"]["state"] for each in resources(life)}
        )
    )
    life.helm("uninstall", life.release, "-n", life.namespace, "--wait", "--timeout", "8m")

    assert life.kubectl("get", "namespace", life.sandboxes, "--ignore-not-found") == ""
    # What the cluster itself makes in a namespace, or of what was in it.
    of_the_cluster = ("configmap/kube-root-ca.crt", "serviceaccount/default", "event")

    def left() -> list[str]:
        kinds = life.kubectl("api-resources", "--verbs=list", "--namespaced", "-o", "name").split()
        names = life.kubectl("get", ",".join(kinds), "-n", life.namespace, "-o", "name", "--ignore-not-found")
        return sorted(each for each in names.split() if not each.startswith(of_the_cluster))

    kept = [f"secret/{name}" for name in sorted(secrets(life))]
    assert len(kept) == 2
    until(lambda: not set(left()) - set(kept))
    assert left() == kept
    kinds = life.kubectl("api-resources", "--verbs=list", "--namespaced=false", "-o", "name").split()
    label = f"app.kubernetes.io/instance={life.release}"
    assert life.kubectl("get", ",".join(kinds), "-l", label, "-o", "name", "--ignore-not-found") == ""
    definitions = life.kubectl("get", "customresourcedefinitions", "-o", "name")
    assert "sandboxes.sandlot.dev" in definitions
    assert "sandboxpools.sandlot.dev" in definitions
