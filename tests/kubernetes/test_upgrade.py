"""Upgrades from an earlier commit's programs and chart, with sandboxes of theirs, also to a release in a registry."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sandlot import Client, Sandbox

from tests import plain_http
from tests.cluster import cluster
from tests.kubernetes.artifacts import published
from tests.kubernetes.boxes import POOLED, filled, pod_of, until, warm
from tests.kubernetes.killing import own_cluster_only
from tests.kubernetes.old_release import OldRelease, old_release
from tests.kubernetes.releases import release_of_its_own
from tests.kubernetes.stack import CHART, IMAGE, Stack
from tests.kubernetes.upgrades import (
    LONG,
    check_all_lives,
    gateways,
    goes_on,
    identity,
    once_and_whole,
    stopped_at_the_end,
    words,
)

pytestmark = pytest.mark.timeout(1800)
SIZE = 2
VALUES = {
    "pools": {"default": {"size": SIZE, "template": {"image": IMAGE, **POOLED}}},
    "gateway.config": {"drain": 1},  # less than what runs takes: its connection drops
}
SERVE = "cd /tmp && echo served > page && exec python3 -m http.server 8000"


@pytest.fixture(scope="module")
def old() -> OldRelease:
    own_cluster_only()
    if not os.environ.get("SANDLOT_TEST_UPGRADE"):
        pytest.skip("takes minutes: `make test-upgrade` runs it")
    return old_release()


@pytest.fixture(params=["gvisor", "runc"])
def life(request: pytest.FixtureRequest, old: OldRelease) -> Iterator[Stack]:
    """The old release, with its own resource definitions."""
    for archive in old.archives:
        cluster.load_image(archive)
    with release_of_its_own("upgrade", runtime=request.param) as stack:
        try:
            define(stack, old.chart)
            stack.install(*words(VALUES), "--skip-crds", "--set", f"image.tag={old.tag}", chart=old.chart)
            yield stack
        finally:
            define(stack, CHART)


def define(stack: Stack, chart: os.PathLike[str]) -> None:
    stack.kubectl("apply", "--server-side", "--force-conflicts", "-f", os.path.join(chart, "crds"))


def images(stack: Stack, namespace: str, component: str) -> set[str]:
    """Of the pods' containers, those that do not end."""
    pods = stack.get("pods", "-n", namespace, "-l", f"app.kubernetes.io/component={component}")["items"]
    alive = [pod["spec"] for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    return {container["image"] for spec in alive for container in spec["containers"]}


def sidecar_image(stack: Stack, box: Sandbox) -> str:
    containers = pod_of(stack, box)["spec"]["containers"]
    return next(each["image"] for each in containers if each["name"] == "sidecar")


def test_sandboxes_and_commands_live_through_an_upgrade_from_older_programs(
    life: Stack, old: OldRelease
) -> None:
    def upgrade() -> None:
        # As docs/upgrade.md says.
        define(life, CHART)
        life.install(*words(VALUES))

    live_through(life, old, upgrade, ours=lambda component: f"{component}:dev")


@pytest.mark.parametrize("life", ["gvisor"], indirect=True)
def test_they_live_through_an_upgrade_to_a_release_that_a_registry_has_alone(
    life: Stack, old: OldRelease, tmp_path: Path
) -> None:
    """By the commands of docs/upgrade.md for one; nodes pull its images."""
    with published(tmp_path / "release") as artifacts:

        def upgrade() -> None:
            pull = ("--version", artifacts.version, "--plain-http", "--untar", "--untardir", str(tmp_path))
            life.helm("pull", artifacts.chart, *pull)
            define(life, tmp_path / "sandlot")
            # The values of before, without those that bring images to nodes in another way.
            values = json.loads(life.helm("get", "values", life.release, "-n", life.namespace, "-o", "json"))
            del values["image"], values["sandboxes"]
            (tmp_path / "values.json").write_text(json.dumps(values))
            given = ("--values", str(tmp_path / "values.json"), "--wait", "--timeout", "8m")
            life.helm("upgrade", life.release, str(tmp_path / "sandlot"), "-n", life.namespace, *given)

        try:
            live_through(
                life, old, upgrade, ours=lambda component: f"{component}@{artifacts.digests[component]}"
            )
        finally:
            life.uninstall()  # while nodes reach the registry


def live_through(
    life: Stack, old: OldRelease, upgrade: Callable[[], None], *, ours: Callable[[str], str]
) -> None:
    """`ours`: the end of the name that a component's image has after the upgrade."""
    before_it = f":{old.tag}"
    filled(life, size=SIZE)
    for component in ("gateway", "controller"):
        assert {each.rpartition("/")[2] for each in images(life, life.namespace, component)} == {
            f"{component}{before_it}"
        }
    with ThreadPoolExecutor(1) as thread, Client(url=life.url, api_key=life.api_key) as client:
        boxes = [
            warm(client),
            Sandbox.create(IMAGE, client=client, cpu=0.5, memory=128 << 20, disk=256 << 20, wait=240),
        ]
        for box in boxes:
            assert sidecar_image(life, box).endswith(before_it)
            box.files.write("/mine", box.id.encode())
            box.start("sleep 3600", detach=True, op_id="background")
        identities = [identity(life, box) for box in boxes]
        boxes[1].start(SERVE, detach=True)
        page = f"{boxes[1].expose(8000)}/page"
        until(lambda: plain_http.get(page, timeout=30).text == "served\n")
        running = thread.submit(boxes[0].exec, LONG, timeout=1200)
        with stopped_at_the_end(boxes[0]):
            until(lambda: boxes[0].exec("test -s /count", timeout=30).ok)
            replaced = gateways(life)
            upgrade()
            assert not gateways(life) & replaced
            for component in ("gateway", "controller"):
                assert {each.rpartition("/")[2] for each in images(life, life.namespace, component)} == {
                    ours(component)
                }
            check_all_lives(life, client, boxes, identities)
            until(lambda: plain_http.get(page, timeout=30).text == "served\n")
            # Warm pods are replaced one by one; those of the sandboxes stay.
            until(
                lambda: old_pods(life, before_it) == {pod_of(life, box)["metadata"]["name"] for box in boxes},
                seconds=300,
            )
            goes_on(running)
        once_and_whole(boxes[0], running.result(timeout=240))
        with warm(client) as another:
            assert sidecar_image(life, another).endswith(ours("sidecar"))
            assert another.exec("echo new", timeout=60).stdout == "new\n"
        for box in boxes:
            box.delete()
            assert box.refresh().verdict == "deleted"
        until(lambda: not old_pods(life, before_it))


def old_pods(stack: Stack, tag: str) -> set[str]:
    pods = stack.get("pods", "-n", stack.sandboxes, "-l", "app.kubernetes.io/component=sandbox")["items"]
    return {
        pod["metadata"]["name"]
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"]
        and any(each["image"].endswith(tag) for each in pod["spec"]["containers"])
    }
