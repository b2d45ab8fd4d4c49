"""The requests and limits that the doctor expects of a pool's pods are those that the controller gives them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from sandlot.cli.cluster.api import Listing
from sandlot.cli.cluster.doc import Doc
from sandlot.cli.cluster.quantities import quantity
from sandlot.cli.cluster.sizes import pool_sizes
from sandlot.cli.cluster.world import Kind
from sandlot_controller.plan.pod import pool_pod
from sandlot_controller.settings import Settings
from sandlot_kube.objects import SandboxPool

from tests.cli.cluster.breaks import settings
from tests.cli.cluster.worlds import RELEASE, Cluster


@pytest.mark.parametrize(
    ("given", "runtime_class"),
    [
        ({}, None),
        ({}, "kata"),
        ({"RUNTIME_CLASS": ""}, None),
        ({"DISK_SHARE": "0.3", "GPU_RESOURCE": "amd.com/gpu"}, None),
        ({"GUARANTEED": "true"}, None),
        ({"CPU_SHARE": "0.5", "MEMORY_SHARE": "0.125", "MEMORY_HEADROOM": "0"}, None),
        (
            {"SIDECAR_CPU_LIMIT": "0.1", "SIDECAR_MEMORY_LIMIT": "67108864", "SIDECAR_CPU_REQUEST": "0.02"},
            None,
        ),
    ],
)
def test_sizes_are_the_controllers(given: dict[str, str], runtime_class: str | None) -> None:
    cluster = Cluster()
    template: dict[str, Any] = {
        "image": "python:3.12",
        "cpu": 1.5,
        "memory": 1 << 29,
        "disk": 3 << 30,
        "gpuCount": 2,
    }
    if runtime_class:
        template["runtimeClass"] = runtime_class
    cluster.one(Kind.POOLS, RELEASE.sandboxes, "default")["spec"]["template"] = template
    settings("controller", **given)(cluster)
    readings = {key: Listing([Doc(raw) for raw in raws]) for key, raws in cluster.objects.items()}
    cluster.but(readings=readings)
    (size,) = pool_sizes(cluster.world)

    env = {"RUNTIME_CLASS": "gvisor", **given}
    chosen: dict[str, Any] = {name.lower(): value or None for name, value in env.items()}
    made = Settings(namespace="n", key_file=Path("k"), webhook_url="http://g", sidecar_image="s", **chosen)
    pool = msgspec.convert(
        {"metadata": {"name": "default"}, "spec": {"size": 1, "template": template}}, SandboxPool
    )
    expected = pool_pod(pool, instance_id="i-1", token="t", settings=made)["spec"]["containers"]
    for container, found in zip(expected, size.containers, strict=True):
        for kind, sizes in (("requests", found.requests), ("limits", found.limits)):
            given_to = container["resources"][kind]
            assert sizes == {resource: quantity(amount) for resource, amount in given_to.items()}
    assert size.whole.limits["memory"] == sum(one.limits["memory"] for one in size.containers)
    gpus = env.get("GPU_RESOURCE", "nvidia.com/gpu")
    assert size.quota(f"requests.{gpus}") == 2
    assert size.quota("limits.ephemeral-storage") == 4 << 30
