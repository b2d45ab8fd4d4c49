"""File-heavy work in a sandbox against a plain container of the same image and runtime on the same node, in turn."""

from __future__ import annotations

import json
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from sandlot import AsyncSandbox

from loadtests.cluster.file_image import on_every_node
from loadtests.cluster.site import Pool, Site
from loadtests.local.file_rows import DISK, FOLDER, MEMORY, PROGRAM, Seconds, by_part, compare, in_sandbox
from loadtests.reading import Reading

_NAME = "bench-files"
CPU = 2  # the cores of the test cluster's nodes: neither side is throttled


async def files(site: Site, runtime: str) -> dict[str, Reading]:
    """Measure the rows `files_PART_RUNTIME`."""
    image = await on_every_node()
    template = {"image": image, "memory": MEMORY, "disk": DISK}
    async with site.pool(runtime, size=1, cpu=CPU, template=template, reuse="never") as pool:
        box = await pool.create()
        pod = await pod_object(pool, box)
        await pool.full(1)
        async with plain(site, pod, image=image) as in_plain:
            return await compare(by_part(runtime), ours=lambda: in_sandbox(box, "python3"), floor=in_plain)


async def pod_object(pool: Pool, box: AsyncSandbox) -> dict[str, Any]:
    """Return the pod that runs this sandbox."""
    name, namespace = await pool.pod_of(box), pool.site.stack.sandboxes
    return json.loads(await pool.site.kubectl("get", "pod", name, "-n", namespace, "-o", "json"))


def plain_pod(pod: dict[str, Any], *, image: str) -> dict[str, Any]:
    """Return a pod of one plain container, on the node of a sandbox's pod, with the sandbox's runtime and resources."""
    (sandbox,) = [each for each in pod["spec"]["containers"] if each["name"] == "sandbox"]
    spec = {
        "nodeName": pod["spec"]["nodeName"],
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {
                "name": "main",
                "image": image,
                # Otherwise it could be another image than the sandbox's, of the same name.
                "imagePullPolicy": "Never",
                "command": ["sleep", "infinity"],
                "resources": sandbox["resources"],
            }
        ],
    }
    if "runtimeClassName" in pod["spec"]:
        spec["runtimeClassName"] = pod["spec"]["runtimeClassName"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": _NAME}, "spec": spec}


@asynccontextmanager
async def plain(
    site: Site, pod: dict[str, Any], *, image: str
) -> AsyncIterator[Callable[..., Awaitable[Seconds]]]:
    """Run such a container; the block gets a function that does the file work in it, with these further words."""
    where = ("-n", site.stack.namespace)

    async def work(*root: str) -> Seconds:
        command = shlex.join(["python3", "-c", PROGRAM, FOLDER, *root])
        told = await site.in_pod(_NAME, command, namespace=site.stack.namespace, container="main")
        return json.loads(told)

    try:
        await site.kubectl("apply", *where, "-f", "-", stdin=json.dumps(plain_pod(pod, image=image)))
        await site.kubectl("wait", f"pod/{_NAME}", *where, "--for=condition=Ready", "--timeout=90s")
        yield work
    finally:
        await site.kubectl("delete", "pod", _NAME, *where, "--ignore-not-found", "--wait")
