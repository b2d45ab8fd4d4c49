"""The pool that the chart creates while `pools` is empty: when, of which image, and when not."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from sandlot_contract.images import INTERNAL, refusal

from tests.chart.release import Release
from tests.chart.render import CHART, NAMESPACE, RELEASE, VERSION, helm, of_kind, one, render
from tests.kube.apiserver import ApiServer

OLDER: dict[str, Any] = {"defaultPool": None, "image": {"python": None, "digests": None}}


def test_values_of_a_release_without_it_give_none() -> None:
    """`helm upgrade --reuse-values` passes the older chart's defaults only."""
    assert of_kind(render(OLDER), "SandboxPool") == []


@pytest.mark.parametrize(
    "values",
    [
        {"defaultPool": {"enabled": True, "size": None}},
        {"image": {"python": None}},
        {"image": {"digests": None}},
    ],
)
def test_a_missing_value_is_its_default(values: dict[str, Any]) -> None:
    pool = one(render(values), "SandboxPool", "default")
    assert pool["spec"] == {"size": 2, "template": {"image": f"sandlot/python:{VERSION}"}}


def test_a_tool_without_a_cluster_creates_it() -> None:
    """Argo CD names the cluster's kinds, but `lookup` gives it nothing."""
    kind = "sandlot.dev/v1alpha1/SandboxPool"
    done = helm("template", RELEASE, str(CHART), "-n", NAMESPACE, "--api-versions", kind)
    assert (done.returncode, "kind: SandboxPool" in done.stdout) == (0, True), done.stderr


ADDRESSES = ("10.0.0.5:5000/sandlot", "127.1/sandlot", "registry.0x7f/sandlot")
INSIDE = ("registry:5000/sandlot", "localhost/sandlot", "Registry.Corp:5000/a/b", "a.home.arpa/x")
PUBLIC = ("", "sandlot", "local/sandlot", "registry.example/sandlot", "registry.notlocal:5000/sandlot/")
LISTS = (["docker.io"], ["*.example", "10.0.0.5:5000"], ["REGISTRY.corp:5000", "*.arpa"])


@pytest.mark.parametrize(
    ("registry", "allowed"),
    [
        *((registry, []) for registry in (*ADDRESSES, *INSIDE, *PUBLIC)),
        *((f"registry.{name}/sandlot", []) for name in INTERNAL),
        *((registry, LISTS[0]) for registry in ("", "sandlot", "registry.example/sandlot")),
        *((registry, LISTS[1]) for registry in ("sandlot", "registry.example/x", "registry.example:80/x", ADDRESSES[0])),
        *((registry, LISTS[2]) for registry in (*INSIDE[2:], "registry.corp/sandlot")),
    ],
)  # fmt: skip
def test_there_is_one_where_controllers_accept_its_image(registry: str, allowed: list[str]) -> None:
    values = {"image": {"registry": registry}, "gateway": {"config": {"registries": allowed}}}
    image = f"{registry.rstrip('/')}/python:{VERSION}".removeprefix("/")
    accepted = refusal(image, allowed=allowed) is None
    pools = of_kind(render(values), "SandboxPool")
    assert [each["spec"]["template"]["image"] for each in pools] == [image] * accepted


@pytest.mark.parametrize(
    ("registry", "allowed", "why"),
    [
        ("10.0.0.5:5000/sandlot", [], "10.0.0.5:5000 is an address or an internal name"),
        (
            "registry.example/sandlot",
            ["docker.io"],
            "gateway.config.registries does not list registry.example",
        ),
    ],
)
def test_the_notes_say_why_there_is_none_and_what_to_set(registry: str, allowed: list[str], why: str) -> None:
    values = {"image": {"registry": registry}, "gateway": {"config": {"registries": allowed}}}
    said = notes(values)
    assert f"refuse its image {registry}/python:{VERSION}: {why}." in said
    (setting,) = re.findall(r"--set-json '(.+)'", said)
    host = registry.partition("/")[0]
    assert setting == f'gateway.config.registries=["{host}","docker.io"]'
    listed = json.loads(setting.partition("=")[2])
    assert of_kind(render(values | {"gateway": {"config": {"registries": listed}}}), "SandboxPool")
    for other in (
        {"defaultPool": {"enabled": False}},
        {"pools": {"p": {"size": 1, "template": {"image": "x"}}}},
    ):
        assert "refuse" not in notes(values | other)


def notes(values: dict[str, Any]) -> str:
    """What an install prints, which asks no API server."""
    done = helm("install", RELEASE, str(CHART), "-n", NAMESPACE, "--dry-run=client", values=values)
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("NOTES:")[2]


def test_the_default_pool_gives_way_to_pools_that_others_made(apiserver: ApiServer, release: Release) -> None:
    namespace = apiserver.namespace("pools")

    def with_pool(**values: object) -> Release:
        """An upgrade without any values takes those of the release before."""
        return Release(apiserver, release.kubeconfig, namespace, namespace, {"defaultPool": values})

    base = f"/apis/sandlot.dev/v1alpha1/namespaces/{namespace}-sandboxes/sandboxpools"
    pool = {
        "apiVersion": "sandlot.dev/v1alpha1",
        "kind": "SandboxPool",
        "metadata": {"name": "mine"},
        "spec": {"size": 1, "template": {"image": "python:3.12"}},
    }

    def names() -> list[str]:
        return [each["metadata"]["name"] for each in apiserver.call("GET", base)["items"]]

    try:
        with_pool(enabled=False).run("install")
        apiserver.call("POST", base, pool)
        with_pool(size=3).run("upgrade")
        assert names() == ["mine"]
        apiserver.call("DELETE", f"{base}/mine")
        with_pool(size=3).run("upgrade")
        assert names() == ["default"]
        apiserver.call("POST", base, pool)
        with_pool(size=3).run("upgrade")
        assert names() == ["default", "mine"], "an upgrade deletes no pool in use"
    finally:
        with_pool().run("uninstall")
        with_pool().end_namespace()
