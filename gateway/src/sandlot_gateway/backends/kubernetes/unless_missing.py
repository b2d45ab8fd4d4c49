"""Changes of a resource that may have been deleted meanwhile."""

from __future__ import annotations

from sandlot_kube.client import MERGE_PATCH, KubeClient
from sandlot_kube.errors import KubeError


async def unless_missing(client: KubeClient, method: str, path: str, *, body: object = None) -> None:
    """A Sandbox that was deleted takes its pod along, which is more than an end could. Raises KubeError but for a 404."""
    try:
        await client.request(method, path, body=body, content_type=MERGE_PATCH)
    except KubeError as error:
        if error.status != 404:
            raise
