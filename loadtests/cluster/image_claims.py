"""Slots on every node of kwok's cluster, and sandboxes of a data set's images in most of them: the real controller
places the slots, the real gateway chooses one for each create, stubs serve all sidecars and node agents.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import msgspec
from sandlot import AsyncClient, AsyncSandbox
from sandlot_contract.names import API_VERSION, POOL_KIND
from sandlot_controller.plan.placement.needs import of_spec
from sandlot_controller.plan.pod import spec_of
from sandlot_controller.settings import Settings
from sandlot_grade.report.stats import percentile
from sandlot_kube import paths
from sandlot_kube.template import Template

from loadtests.cluster import parts
from loadtests.cluster.control_plane import ROOM
from loadtests.cluster.simulated_cluster import SimulatedCluster, measured
from loadtests.cluster.stub_agents import StubAgents
from loadtests.placement.image_simulation import BUDGET, BUSY, warm_up, weights
from loadtests.placement.node_images import Nodes
from loadtests.reading import Reading

ROWS = ("images_local", "slots_placed", "starts_simulated")
AT_ONCE = 30  # creates in progress
PULL = 2.0  # seconds
_LONGEST = 900.0  # seconds for the whole run
_TEMPLATE = {"cpu": 1, "memory": 1 << 30, "disk": 5 << 30, "pids": 1024}


@dataclass(frozen=True, slots=True)
class Size:
    nodes: int = 1_000
    slots_per_node: int = 10

    @property
    def slots(self) -> int:
        return self.nodes * self.slots_per_node


async def image_claims(size: Size = Size()) -> dict[str, Reading]:
    """Measure the rows of this file."""
    what = f"{size.slots} slots and their claims"
    return await measured(
        lambda cluster: _measured(cluster, size), name="images", what=what, longest=_LONGEST
    )


async def _measured(cluster: SimulatedCluster, size: Size) -> dict[str, Reading]:
    # Room for the slots and nothing else: a claimed slot has no replacement.
    await cluster.make_nodes(size.nodes, room={**ROOM, "cpu": f"{millicores() * size.slots_per_node}m"})
    nodes = Nodes((f"kwok-{number}" for number in range(size.nodes)), budget=BUDGET)
    warm_up(nodes)
    agents = StubAgents(nodes, pull=PULL)
    await agents.make_pods(cluster.client, cluster.namespace)
    await cluster.stack.enter_async_context(agents.listening())
    cluster.start_kwok()
    cluster.start_scheduler()
    watch = await cluster.start_stubs()
    gateway = await cluster.start_gateway(agents=True)
    controller = await cluster.start_controller(retention=60.0, slots=True)
    begun, used = time.monotonic(), parts.cpu(controller.process)
    resource = {
        "apiVersion": API_VERSION,
        "kind": POOL_KIND,
        "metadata": {"name": "slots"},
        "spec": {"size": size.slots, "template": _TEMPLATE, "reuse": {"policy": "never"}},
    }
    await cluster.client.request("POST", paths.pools(cluster.namespace), body=resource)

    async def warm() -> bool:
        return await gateway.number("sandlot_ready_instances") >= size.slots

    async def listed() -> bool:
        return not agents.unlisted

    await parts.until(warm)
    placed = Reading(
        value=time.monotonic() - begun,
        parts={
            "slots": str(size.slots),
            "nodes": str(len(set(watch.nodes.values()))),
            "the controller's CPU": f"{parts.cpu(controller.process) - used:.1f} s",
        },
    )
    starts = Reading(value=watch.most_starting / _starts_per_node(), parts={})
    await parts.until(listed)
    return {"images_local": await _claims(gateway, nodes, size), "slots_placed": placed, ROWS[2]: starts}


async def _claims(gateway: parts.Part, nodes: Nodes, size: Size) -> Reading:
    """Create sandboxes until most slots have one; those that go on keep their slots."""
    count = int(size.slots * BUSY)
    images = random.Random(1).choices(
        list(weights()), cum_weights=list(accumulate(weights().values())), k=count
    )
    before, used, begun = nodes.pulls, parts.cpu(gateway.process), time.monotonic()
    took: list[float] = []
    left = iter(images)
    async with AsyncClient(url=gateway.url, api_key=gateway.api_key) as client:

        async def caller() -> None:
            for image in left:
                asked = time.monotonic()
                await AsyncSandbox.create(pool="slots", image=image, client=client)
                took.append(time.monotonic() - asked)

        await asyncio.gather(*(caller() for _ in range(AT_ONCE)))
    pulls = nodes.pulls - before
    took.sort()
    told = {
        "sandboxes": str(count),
        "images": str(len(set(images))),
        "pulls": str(pulls),
        "creates/s": f"{count / (time.monotonic() - begun):.0f}",
        **{f"create p{share * 100:.0f}": f"{percentile(took, share) * 1000:.0f} ms" for share in (0.5, 0.99)},
        "the gateway's CPU a create": f"{(parts.cpu(gateway.process) - used) / count * 1000:.1f} ms",
    }
    return Reading(value=1 - pulls / count, parts=told)


def _settings() -> Settings:
    return Settings.model_validate(
        {
            "namespace": "images",
            "key_file": Path("/nonexistent"),
            "webhook_url": "http://gateway",
            "sidecar_image": "sandlot/sidecar:1",
            "images_directory": "/var/lib/sandlot/images",
        }
    )


def millicores() -> int:
    """Return what the pod of a slot requests."""
    template = msgspec.convert(_TEMPLATE, Template)
    return dict(of_spec(spec_of(template, settings=_settings())).requests)["cpu"]


def _starts_per_node() -> int:
    return _settings().starts_per_node
