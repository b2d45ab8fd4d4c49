"""The agent's counter of pulled bytes, against what the registry says that it sent."""

from __future__ import annotations

import asyncio
import gzip
import random

from sandlot_node.failures import Kind
from sandlot_node.metrics import Metrics
from sandlot_node.preparer import Preparer

from tests.node.agents import Node, failing, ready
from tests.node.private_containerd import NEEDS_CONTAINERD
from tests.node.registries import OPEN, Layer, Packed, Registries, TestImage
from tests.waiting import until

pytestmark = NEEDS_CONTAINERD

SHARING = tuple(f"sharing-{number}" for number in range(4))
NAMES = ("counted", "had", "has-its-base", "again", "foreign", "broken", *SHARING)


def large(name: str) -> Layer:
    """A layer that does not compress."""
    return Layer(files={name: random.Random(name).randbytes(3 << 20)})


class Agent:
    """An agent with its counter, and what the registry has sent since it began."""

    def __init__(self, preparer: Preparer, metrics: Metrics, registry: Registries) -> None:
        self.preparer = preparer
        self._metrics = metrics
        self._registry = registry
        self._before = {name: registry.served(name) for name in NAMES}  # to other tests' containerd

    def pulled(self) -> float:
        return self._metrics.registry.get_sample_value("sandlot_node_pulled_bytes_total") or 0.0

    async def sent(self, *names: str, least: float) -> int:
        """What the registry's log says once it says so much: a line is written after what it tells of was sent."""
        await until(lambda: self._sent(names) >= least, what=f"{least:.0f} bytes in the registry's log")
        return self._sent(names)

    def _sent(self, names: tuple[str, ...]) -> int:
        return sum(self._registry.served(name) - self._before[name] for name in names)


async def agent_of(node: Node, registry: Registries) -> Agent:
    metrics = Metrics()
    return Agent(await node.agent(metrics=metrics), metrics, registry)


async def test_every_byte_that_the_registry_sent_counts_once(node: Node, registry: Registries) -> None:
    registry.push("counted", TestImage(layers=[large("counted"), large("more")]))
    agent = await agent_of(node, registry)
    await ready(agent.preparer, f"{OPEN}/counted:1")
    pulled = agent.pulled()
    assert pulled == await agent.sent("counted", least=pulled) > 6 << 20


async def test_what_the_node_has_does_not_count(node: Node, registry: Registries) -> None:
    base = large("had")
    registry.push("had", TestImage(layers=[base]))
    registry.push("has-its-base", TestImage(layers=[base, large("own")]))
    registry.push("had-by-another-name", TestImage(layers=[base]))
    agent = await agent_of(node, registry)
    await ready(agent.preparer, f"{OPEN}/had:1")
    before = agent.pulled()
    await ready(agent.preparer, f"{OPEN}/has-its-base:1")
    pulled = agent.pulled() - before
    assert pulled == await agent.sent("has-its-base", least=pulled) < 4 << 20
    before = agent.pulled()
    await ready(agent.preparer, f"{OPEN}/had-by-another-name:1")
    assert agent.pulled() == before


async def test_an_image_that_was_released_counts_again(node: Node, registry: Registries) -> None:
    registry.push("again", TestImage(layers=[large("again")]))
    agent = await agent_of(node, registry)
    image = await ready(agent.preparer, f"{OPEN}/again:1")
    once = agent.pulled()
    await agent.preparer.delete(image.id)
    await ready(agent.preparer, f"{OPEN}/again:1")
    assert agent.pulled() == await agent.sent("again", least=2 * once) == 2 * once


async def test_a_layer_that_pulls_share_while_they_run_counts_once(node: Node, registry: Registries) -> None:
    shared = large("shared")
    for name in SHARING:
        # Over another base each, so that every pull needs the layer itself and not only what was unpacked of it.
        registry.push(name, TestImage(layers=[Layer(files={name: name.encode()}), shared]))
    agent = await agent_of(node, registry)
    await asyncio.gather(*(ready(agent.preparer, f"{OPEN}/{name}:1") for name in SHARING))
    pulled = agent.pulled()
    assert pulled == await agent.sent(*SHARING, least=pulled) > 3 << 20


async def test_a_pull_that_failed_counts_what_it_fetched(node: Node, registry: Registries) -> None:
    foreign = TestImage(layers=[large("foreign")], architecture="s390x")
    registry.push("foreign", foreign)
    agent = await agent_of(node, registry)
    assert (await failing(agent.preparer, f"{OPEN}/foreign:1")).kind is Kind.WRONG_PLATFORM
    before = agent.pulled()
    assert before == await agent.sent("foreign", least=before) > 3 << 20
    archive = large("broken").archive()
    registry.push_packed("broken", [Packed(blob=gzip.compress(archive), diff_id=f"sha256:{'0' * 64}")])
    assert (await failing(agent.preparer, f"{OPEN}/broken:1")).kind is Kind.FAILED
    pulled = agent.pulled() - before
    assert pulled == await agent.sent("broken", least=pulled) > 3 << 20
    assert (await failing(agent.preparer, f"{OPEN}/absent:1")).kind is Kind.NOT_FOUND
    assert agent.pulled() - before == pulled == await agent.sent("broken", least=pulled)
