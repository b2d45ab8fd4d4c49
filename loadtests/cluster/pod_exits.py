"""What a kubelet writes when a sandbox's pod is over: kwok does not know that its sidecar has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from sandlot_contract.names import CONTAINER_SANDBOX, CONTAINER_SIDECAR
from sandlot_kube import paths
from sandlot_kube.client import MERGE_PATCH, KubeClient
from sandlot_kube.errors import KubeError

_PAUSE = 1.0  # seconds after an API server that did not answer


@asynccontextmanager
async def pod_exits(client: KubeClient, namespace: str) -> AsyncIterator[Callable[[str], None]]:
    """Yield what is to be called with the name of each pod whose sidecar has ended; it returns at once."""
    tasks: set[asyncio.Task[None]] = set()

    def exited(pod: str) -> None:
        task = asyncio.create_task(_succeeded(client, namespace, pod))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    try:
        yield exited
    finally:
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _succeeded(client: KubeClient, namespace: str, pod: str) -> None:
    ended = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    containers: list[dict[str, Any]] = [
        {"name": name, "image": "", "imageID": "", "ready": False, "restartCount": 0, "state": ended}
        for name in (CONTAINER_SANDBOX, CONTAINER_SIDECAR)
    ]
    status = {"phase": "Succeeded", "containerStatuses": containers}
    where = f"{paths.pods(namespace, pod)}/status"
    while True:
        try:
            await client.request("PATCH", where, body={"status": status}, content_type=MERGE_PATCH)
        except KubeError as error:
            if error.status == 404:
                return
            if error.status in (400, 403, 422):
                raise
            # A kubelet tries again, too. Without this the pod would stay, and its pool would never be full again.
            await asyncio.sleep(_PAUSE)
        else:
            return
