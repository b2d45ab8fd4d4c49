"""File-heavy work in a sandbox against a plain container of the same image and runtime on the same node, in turn."""

from __future__ import annotations

import json
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from loadtests.cluster.file_image import on_every_node
from loadtests.cluster.site import Site
from loadtests.file_rows import DISK, FOLDER, MEMORY, PROGRAM, Seconds, compare, in_sandbox
from loadtests.reading import Reading

_NAME = "bench-files"
CPU = 2  # the cores of the test cluster's nodes: neither side is throttled


async def files(site: Site, runtime: str) -> dict[str, Reading]:
    """Measure the rows `files_PART_RUNTIME`."""
    image = await on_every_node()
    template = {"image": image, "memory": MEMORY, "disk": DISK}
    async with site.pool(runtime, size=1, cpu=CPU, template=template) as pool:
        box = await pool.create()
        pod = json.loads(
            await site.kubectl("get", "pod", await pool.pod_of(box), "-n", site.stack.sandboxes, "-o", "json")
        )
        await pool.full(1)
        async with _plain(site, pod, image=image):

            async def in_plain() -> Seconds:
                command = shlex.join(["python3", "-c", PROGRAM, FOLDER])
                told = await site.in_pod(_NAME, command, namespace=site.stack.namespace, container="main")
                return json.loads(told)

            return await compare(ours=lambda: in_sandbox(box, "python3"), floor=in_plain, runtime=runtime)


@asynccontextmanager
async def _plain(site: Site, pod: dict[str, Any], *, image: str) -> AsyncIterator[None]:
    """Run a plain container on the node of a sandbox's pod, with the sandbox's runtime and resources."""
    (sandbox,) = [each for each in pod["spec"]["containers"] if each["name"] == "sandbox"]
    spec = {
        "nodeName": pod["spec"]["nodeName"],
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {
                "name": "main",
                "image": image,
                "imagePullPolicy": "Never",
                "command": ["sleep", "infinity"],
                "resources": sandbox["resources"],
            }
        ],
    }
    if "runtimeClassName" in pod["spec"]:
        spec["runtimeClassName"] = pod["spec"]["runtimeClassName"]
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": _NAME}, "spec": spec}
    where = ("-n", site.stack.namespace)
    try:
        await site.kubectl("apply", *where, "-f", "-", stdin=json.dumps(made))
        await site.kubectl("wait", f"pod/{_NAME}", *where, "--for=condition=Ready", "--timeout=90s")
        yield
    finally:
        await site.kubectl("delete", "pod", _NAME, *where, "--ignore-not-found", "--wait")
