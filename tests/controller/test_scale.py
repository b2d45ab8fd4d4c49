"""The size of a pool by its `scale` subresource: kubectl, the page's autoscaler, and who else writes it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import urllib.error
from pathlib import Path
from typing import Any

import pytest
import yaml
from sandlot_kube import paths
from sandlot_kube.client import MERGE_PATCH
from sandlot_kube.errors import KubeError

from tests.chart.pages import fences
from tests.controller.autoscaling import ExternalMetric, autoscaler
from tests.controller.cluster import Cluster
from tests.kube.apiserver import ApiServer, binary

pytestmark = pytest.mark.programs

PAGE = "docs/pool-scaling.md"
CRD = Path(__file__).parents[2] / "charts/sandlot/crds/sandboxpools.yaml"
TEMPLATE = {"image": "python:3.12"}


def shown(kind: str) -> dict[str, Any]:
    """The page's example of it."""
    found = [fence.document for fence in fences(PAGE, "yaml") if fence.document.get("kind") == kind]
    (document,) = found
    return document


async def scale(cluster: Cluster, name: str) -> dict[str, Any]:
    return json.loads(await cluster.client.request("GET", paths.pools(cluster.namespace, name) + "/scale"))


async def set_scale(cluster: Cluster, name: str, replicas: int) -> None:
    """As `kubectl scale` does."""
    body = {"spec": {"replicas": replicas}}
    path = paths.pools(cluster.namespace, name) + "/scale"
    await cluster.client.request(
        "PATCH", path, params={"fieldManager": "scaler"}, body=body, content_type=MERGE_PATCH
    )


async def test_the_scale_of_a_pool_is_its_size_and_what_is_warm(cluster: Cluster) -> None:
    async with cluster.controlled(surplus_grace=0.0):
        await cluster.pool(size=1)
        await cluster.until(lambda: len(cluster.warm()) == 1, "one is warm")
        await set_scale(cluster, "p", 3)
        await cluster.until(lambda: len(cluster.warm()) == 3, "three are warm")
        await cluster.until(lambda: cluster.pools["p"].status.replicas == 3, "the status says so")
        await cluster.claim(cluster.warm()[0], generation=1)
        await cluster.until(lambda: cluster.pools["p"].status.claimed == 1, "one is claimed")
        await cluster.until(lambda: len(cluster.warm()) == 3, "it was replaced")
        await cluster.until(lambda: cluster.pools["p"].status.replicas == 3, "the status says so again")
        told = await scale(cluster, "p")
        assert told["spec"]["replicas"] == 3
        assert told["status"] == {"replicas": 3, "selector": "sandlot.dev/pool=p"}
        selected = {"labelSelector": told["status"]["selector"]}
        answer = await cluster.client.request("GET", paths.pods(cluster.namespace), params=selected)
        assert {pod["metadata"]["name"] for pod in json.loads(answer)["items"]} == set(cluster.pods)
        assert len(cluster.pods) == 4
        told["spec"]["replicas"] = 0
        await cluster.client.request("PUT", paths.pools(cluster.namespace, "p") + "/scale", body=told)
        await cluster.until(lambda: not cluster.warm(), "none is warm")
        await cluster.until(lambda: cluster.pools["p"].status.replicas == 0, "the status says so")
        assert cluster.pools["p"].status.claimed == 1


async def test_a_pool_that_the_controller_sizes_refuses_to_be_scaled(cluster: Cluster) -> None:
    spec = {"template": TEMPLATE, "minSize": 1, "maxSize": 4}
    await cluster.apply("SandboxPool", "p", spec)
    with pytest.raises(KubeError, match="remove minSize and maxSize first"):
        await set_scale(cluster, "p", 3)
    with pytest.raises(KubeError, match=r"\.spec\.size"):  # so that an autoscaler leaves it alone
        await scale(cluster, "p")
    await cluster.pool("q", size=1)
    with pytest.raises(KubeError, match="less than or equal to 10000"):
        await set_scale(cluster, "q", 10_001)


async def test_a_manifest_without_a_size_leaves_that_of_an_autoscaler_alone(cluster: Cluster) -> None:
    await cluster.pool(size=1)
    await set_scale(cluster, "p", 7)
    await cluster.apply("SandboxPool", "p", {"template": {"image": "python:3.13"}})
    applied = json.loads(await cluster.client.request("GET", paths.pools(cluster.namespace, "p")))["spec"]
    assert (applied["size"], applied["template"]["image"]) == (7, "python:3.13")


async def test_kubectl_scales_a_pool(cluster: Cluster, resources: ApiServer, tmp_path: Path) -> None:
    program = binary("kubectl")
    if program is None:
        pytest.skip("needs kubectl of the test cluster (`make cluster` builds it)")
    await cluster.pool("numpy", size=1)
    config = resources.kubeconfig(tmp_path / "config", namespace=cluster.namespace)
    (command,) = (
        line for fence in fences(PAGE, "sh") for line in fence.text.splitlines() if " scale " in line
    )
    words = command.replace(" -n sandlot-sandboxes", f" --kubeconfig={config}").split()[1:]
    done = await asyncio.to_thread(
        subprocess.run,
        [program, *words, f"--cache-dir={tmp_path / 'cache'}"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "sandboxpool.sandlot.dev/numpy scaled" in done.stdout, done.stderr
    assert (await scale(cluster, "numpy"))["spec"]["replicas"] == 32


async def test_kubernetes_autoscaler_sizes_a_pool_by_the_page_s_example(
    cluster: Cluster, resources: ApiServer, tmp_path: Path
) -> None:
    if binary("kube-controller-manager") is None:
        pytest.skip("needs kube-controller-manager of the test cluster (`make cluster` builds it)")
    example = shown("HorizontalPodAutoscaler")
    external = example["spec"]["metrics"][0]["external"]
    name, labels = external["metric"]["name"], external["metric"]["selector"]["matchLabels"]
    metric = ExternalMetric(name, labels, value=20)
    example["metadata"]["namespace"] = cluster.namespace
    example["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] = 0
    collection = f"/apis/autoscaling/v2/namespaces/{cluster.namespace}/horizontalpodautoscalers"
    async with cluster.controlled():
        await cluster.pool("numpy", size=1)
        await cluster.client.request("POST", collection, params={"fieldValidation": "Strict"}, body=example)
        async with metric.served(cluster.client, tmp_path):
            with autoscaler(resources, tmp_path):
                await cluster.until(lambda: cluster.pools["numpy"].spec.size == 5, "one for each four of 20")
                await cluster.until(lambda: len(cluster.warm("numpy")) == 5, "they are warm")
                metric.value = 1
                await cluster.until(lambda: cluster.pools["numpy"].spec.size == 2, "never below its least")
                await cluster.pool("numpy", size=9)
                await cluster.until(lambda: cluster.pools["numpy"].spec.size == 2, "it overwrites others")


def test_the_examples_name_the_pool_s_kind_and_one_metric(resources: ApiServer) -> None:
    definition = yaml.safe_load(CRD.read_text())["spec"]
    kind = {
        "apiVersion": f"{definition['group']}/{definition['versions'][0]['name']}",
        "kind": definition["names"]["kind"],
        "name": "numpy",
    }
    hpa, scaled = shown("HorizontalPodAutoscaler"), shown("ScaledObject")
    assert hpa["spec"]["scaleTargetRef"] == scaled["spec"]["scaleTargetRef"] == kind
    (adapter,) = (fence.document for fence in fences(PAGE, "yaml") if fence.file == "adapter.yaml")
    (rule,) = adapter["rules"]["external"]
    assert rule["name"]["as"] == hpa["spec"]["metrics"][0]["external"]["metric"]["name"]
    path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
    with pytest.raises(urllib.error.HTTPError) as caught:  # the strict validation above does find such fields
        resources.call("POST", f"{path}?fieldValidation=Strict&dryRun=All", {**hpa, "spce": {}})
    assert "unknown field" in caught.value.read().decode()
