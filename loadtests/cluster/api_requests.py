"""How many requests an API server has answered, by verb and resource, from its own metrics."""

from __future__ import annotations

import re
from collections import Counter

from sandlot_kube.client import KubeClient

_NAME = "apiserver_request_total{"
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


async def look(client: KubeClient) -> Counter[str]:
    """Return the requests of all clients so far, by `VERB RESOURCE`. A watch counts when it ends."""
    return counted((await client.request("GET", "/metrics", timeout=60.0)).decode())


def counted(metrics: str) -> Counter[str]:
    """Return the sums of `apiserver_request_total` by verb and resource with subresource; paths without one are left out.

    Raises ValueError if there are none: then the API server names them otherwise.
    """
    found = Counter[str]()
    for line in metrics.splitlines():
        if line.startswith(_NAME):
            labels, _, value = line.removeprefix(_NAME).rpartition("} ")
            told = dict(_LABEL.findall(labels))
            if told.get("resource"):
                what = "/".join(filter(None, (told["resource"], told.get("subresource"))))
                found[f"{told['verb']} {what}"] += int(float(value))
    if not found:
        raise ValueError(f"the API server's metrics have no {_NAME.rstrip('{')} of a resource")
    return found


def each(requests: Counter[str], count: int) -> dict[str, str]:
    """Return how many there were for each of so many, the most frequent first; less than 0.01 are left out."""
    return {
        name: f"{number / count:.2f}" for name, number in requests.most_common() if number / count >= 0.01
    }
