"""The node agents of an installation: has them prepare images, and reads what they and the controllers have made."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Iterable, Sequence

from sandlot_contract.ports import CONTROLLER_PORT, NODE_AGENT_PORT

from loadtests.cluster.site import Site
from loadtests.load import dataset
from tests.cluster import cluster
from tests.cluster.paths import IMAGES

# Runs in a gateway's pod, which the network policies let in. Standard input has the calls.
_CALLS = """
import concurrent.futures, json, sys, time, urllib.request
told = json.load(sys.stdin)
headers = {"Authorization": "Bearer " + told["token"], "Content-Type": "application/json"}
def call(one):
    data = None if one["body"] is None else json.dumps(one["body"]).encode()
    end = time.monotonic() + 300
    while True:
        request = urllib.request.Request(one["url"], data=data, headers=headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read().decode()
            if answer.status == 200:
                return text
        if time.monotonic() > end:
            raise TimeoutError("not prepared in 300 s: " + one["url"] + " " + json.dumps(one["body"]))
with concurrent.futures.ThreadPoolExecutor(4) as threads:
    print(json.dumps(list(threads.map(call, told["calls"]))))
"""
_SAMPLES = {
    "images_prepared": re.compile(r'^sandlot_node_preparations_total\{result="ok"\} (\S+)$', re.MULTILINE),
    "bytes_pulled": re.compile(r"^sandlot_node_pulled_bytes_total (\S+)$", re.MULTILINE),
    "image_bytes": re.compile(r"^sandlot_node_image_bytes (\S+)$", re.MULTILINE),
}
_PODS = re.compile(r"^sandlot_controller_pods_created_total\{[^}]*\} (\S+)$", re.MULTILINE)


async def pushed_python() -> str:
    """Push the usual image of sandboxes to the test cluster's registry, from which agents pull; return its name."""
    return await asyncio.to_thread(cluster.push_image, IMAGES / "archives" / "python.tar")


async def pushed_images(count: int) -> list[str]:
    """Push a data set's images that no node has to the test cluster's registry; return their names."""

    def pushed() -> list[str]:
        with dataset.new_layout(count) as layout:
            return cluster.push_images(layout)

    return await asyncio.to_thread(pushed)


async def prepare(site: Site, images: Sequence[str]) -> None:
    """Have the agent of each node prepare all images. Raises ClusterError."""
    urls = [f"{agent}/v1/images?wait=30" for agent in await _agents(site)]
    await _ask(site, [{"url": url, "body": {"image": image}} for image in images for url in urls])


async def supplied(site: Site) -> dict[str, int]:
    """Return the preparations of all nodes' agents, the bytes pulled for them and on disk, and the pods created so far."""
    agents, controllers = await _agents(site), await _controllers(site)
    texts = await _ask(site, [{"url": f"{one}/metrics", "body": None} for one in (*agents, *controllers)])
    return made(agents=texts[: len(agents)], controllers=texts[len(agents) :])


def made(*, agents: Iterable[str], controllers: Iterable[str]) -> dict[str, int]:
    """Return the same from the metrics of these agents and controllers."""
    agents = list(agents)
    found = {name: sum(_numbers(pattern, agents)) for name, pattern in _SAMPLES.items()}
    return {**found, "pods": sum(_numbers(_PODS, controllers))}


async def _controllers(site: Site) -> list[str]:
    pods = await site.pods(component="controller")
    return [f"http://{pod['status']['podIP']}:{CONTROLLER_PORT}" for pod in pods]


def _numbers(pattern: re.Pattern[str], texts: Iterable[str]) -> list[int]:
    return [int(float(number)) for text in texts for number in pattern.findall(text)]


async def _agents(site: Site) -> list[str]:
    chosen = ("pods", "-n", site.stack.sandboxes, "-l", "app.kubernetes.io/component=node-agent")
    pods = await asyncio.to_thread(site.stack.get, *chosen)
    return [f"http://{pod['status']['podIP']}:{NODE_AGENT_PORT}" for pod in pods["items"]]


async def _ask(site: Site, calls: Sequence[dict[str, object]]) -> list[str]:
    secret = await asyncio.to_thread(
        site.stack.get, "secret", f"{site.stack.release}-node-agent", "-n", site.stack.sandboxes
    )
    token = base64.b64decode(secret["data"]["token"]).decode()
    gateway = f"deploy/{site.stack.release}-gateway"
    words = ("exec", "-i", "-n", site.stack.namespace, gateway, "--", "python3", "-c", _CALLS)
    return json.loads(await site.kubectl(*words, stdin=json.dumps({"token": token, "calls": calls})))
