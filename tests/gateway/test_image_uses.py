"""What a node agent hears of the images that slots use, from before a claim until another image is laid."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sandlot_contract.ids import InstanceId
from sandlot_contract.template import Template
from sandlot_gateway.backends.kubernetes.claim_images import KubernetesImages
from sandlot_gateway.backends.kubernetes.image_uses import ImageUses
from sandlot_gateway.backends.kubernetes.node_agents import (
    AgentError,
    AgentUnreachable,
    NodeAgents,
    Prepared,
    Progress,
)
from sandlot_gateway.backends.kubernetes.settings import KubernetesSettings
from sandlot_gateway.core.backend import NodeFailed
from sandlot_gateway.core.instances import Instance, Laid
from sandlot_gateway.data.pool import DialError
from sandlot_kube.objects import Metadata, Pod, PodSpec, PodStatus

from tests.waiting import until

ONE, TWO = f"sha256:{1:064x}", f"sha256:{2:064x}"
SLOT = InstanceId("i-0123456789abcdef")


class Agents:
    """A node agent; `answers`: whether its answers arrive."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, float | None]] = []
        self.answers = True
        self.open = asyncio.Event()
        self.open.set()
        self.now = 0.0
        self.means = ONE  # what the name one:1 means
        self.preparing = self.older = False
        self.told_since = True
        self.refuses: AgentError | None = None

    async def use(self, node: str, image_id: str, *, slot: str) -> Prepared:
        assert (node, slot) == ("n1", SLOT)
        self.now += 1.0
        self.calls.append(("use", image_id, None))
        if not self.answers:
            raise AgentUnreachable("no answer")
        return Prepared(image_id, "/images/rootfs", since=self.now if self.told_since else None)

    async def prepare(self, node: str, image: str, *, slot: str, **options: Any) -> Any:
        assert (node, image, slot) == ("n1", "one:1", SLOT)
        if self.preparing:
            return Progress("pulling")
        if self.refuses is not None:
            raise self.refuses
        if self.older:  # it does not know of `slot`
            return Prepared(self.means, "/images/rootfs")
        return await self.use(node, self.means, slot=slot)

    async def unuse(self, node: str, image_id: str, *, slot: str, until: float | None) -> None:
        assert (node, slot) == ("n1", SLOT)
        await self.open.wait()
        self.calls.append(("unuse", image_id, until))


class Sidecar:
    """A slot's sidecar as its state says; `image` None: it does not answer."""

    def __init__(self, image: str | None) -> None:
        self.image = image
        self.asked = 0

    async def fetch(self, address: str, method: str, target: str, **options: Any) -> Any:
        self.asked += 1
        if self.image is None:
            raise DialError(address, "refused")
        return SimpleNamespace(status=200, json=lambda: {"image": self.image})


def uses_of(
    agents: Agents, sidecar: Sidecar, *, unlaid_for: float = 0.0, after_claim: float = 0.0
) -> ImageUses:
    return ImageUses(
        cast("Any", agents),
        pool=cast("Any", sidecar),
        unlaid_for=unlaid_for,
        timeout=5.0,
        after_claim=after_claim,
    )


def slot() -> Instance:
    return Instance(SLOT, Template(""), "10.0.0.7:8700", "token", node="n1")


async def test_an_image_that_no_claim_has_laid_is_taken_back() -> None:
    agents, instance = Agents(), slot()
    uses = uses_of(agents, Sidecar(TWO))
    await uses.use("n1", ONE, instance)
    uses.unlaid(instance, ONE)
    await until(lambda: agents.calls == [("use", ONE, None), ("unuse", ONE, 1.0)])
    await uses.close()


async def test_an_image_that_another_gateway_has_laid_meanwhile_stays() -> None:
    agents, instance = Agents(), slot()
    sidecar = Sidecar(ONE)
    uses = uses_of(agents, sidecar)
    await uses.use("n1", ONE, instance)
    uses.unlaid(instance, ONE)
    await until(lambda: sidecar.asked)
    sidecar.image, instance.laid = TWO, Laid(ONE)
    uses.unlaid(instance, ONE)  # it had the image before this claim
    await asyncio.sleep(0.05)
    await uses.close()
    assert (agents.calls, sidecar.asked) == ([("use", ONE, None)], 1)


async def test_the_next_claim_of_the_same_image_keeps_it() -> None:
    agents, instance = Agents(), slot()
    uses = uses_of(agents, Sidecar(TWO), unlaid_for=0.1)
    await uses.use("n1", ONE, instance)
    uses.unlaid(instance, ONE)
    await uses.use("n1", ONE, instance)
    instance.laid = Laid(ONE)
    uses.laid(instance, before=None)
    await asyncio.sleep(0.2)
    await uses.close()
    assert agents.calls == [("use", ONE, None)] * 2


@pytest.mark.parametrize("how", ["unreachable", "cancelled"])
async def test_a_use_whose_answer_is_lost_is_taken_back(how: str) -> None:
    agents, instance = Agents(), slot()
    uses = uses_of(agents, Sidecar(TWO))
    if how == "unreachable":
        agents.answers = False
        with pytest.raises(AgentUnreachable):
            await uses.use("n1", ONE, instance)
    else:
        never = asyncio.Event()

        async def silent(node: str, image_id: str, *, slot: str) -> Prepared:
            agents.calls.append(("use", image_id, None))
            await never.wait()
            raise AssertionError

        agents.use = silent
        task = asyncio.create_task(uses.use("n1", ONE, instance))
        await until(lambda: agents.calls)
        task.cancel()
        await asyncio.wait([task])
    await until(lambda: agents.calls == [("use", ONE, None), ("unuse", ONE, None)])
    await uses.close()


async def ask(uses: ImageUses, instance: Instance) -> Prepared | None:
    return await uses.ask("n1", "one:1", instance, tenant="t", auth=None, expected=ONE)


async def test_a_use_that_was_asked_for_by_name_is_one_like_any_other() -> None:
    agents, instance = Agents(), slot()
    uses = uses_of(agents, Sidecar(TWO))
    used = await ask(uses, instance)
    assert used is not None
    assert (used.id, used.since) == (ONE, 1.0)
    instance.laid = Laid(ONE)
    uses.laid(instance, before=Laid(TWO))
    await until(lambda: agents.calls == [("use", ONE, None), ("unuse", TWO, 1.0)])
    await uses.close()


async def test_the_image_that_a_name_means_by_now_stays() -> None:
    """The node has another one by it than the gateway knew, and an earlier claim of that one had failed."""
    agents, instance = Agents(), slot()
    uses = uses_of(agents, Sidecar(ONE), unlaid_for=0.1)
    await uses.use("n1", TWO, instance)
    uses.unlaid(instance, TWO)
    agents.means = TWO
    used = await ask(uses, instance)
    assert used is not None
    assert used.id == TWO
    await asyncio.sleep(0.2)
    await uses.close()
    assert agents.calls == [("use", TWO, None)] * 2


async def test_the_image_that_a_name_meant_before_is_taken_back() -> None:
    """The gateway took it for the one of the name, and an earlier claim of it had failed."""
    agents, instance = Agents(), slot()
    uses = uses_of(agents, Sidecar(TWO))
    await uses.use("n1", ONE, instance)
    uses.unlaid(instance, ONE)
    agents.means = TWO
    assert await ask(uses, instance) is not None
    await until(lambda: agents.calls[-1] == ("unuse", ONE, None))
    assert agents.calls[:-1] == [("use", ONE, None), ("use", TWO, None)]
    await uses.close()


@pytest.mark.parametrize("why", ["preparing", "older", "refused"])
async def test_a_use_that_has_not_begun_leaves_an_earlier_one_to_its_end(why: str) -> None:
    agents, instance = Agents(), slot()
    sidecar = Sidecar(TWO)
    uses = uses_of(agents, sidecar, unlaid_for=0.05)
    await uses.use("n1", ONE, instance)
    uses.unlaid(instance, ONE)
    agents.preparing, agents.older = why == "preparing", why == "older"
    agents.refuses = AgentError("unauthorized", "no right") if why == "refused" else None
    if why == "refused":
        with pytest.raises(AgentError):
            await ask(uses, instance)
    else:
        assert await ask(uses, instance) is None
    await until(lambda: agents.calls[-1] == ("unuse", ONE, None))
    await uses.close()


async def test_a_use_by_name_whose_answer_is_lost_is_taken_back() -> None:
    agents, instance = Agents(), slot()
    agents.answers = False
    uses = uses_of(agents, Sidecar(TWO))
    with pytest.raises(AgentUnreachable):
        await ask(uses, instance)
    await until(lambda: agents.calls == [("use", ONE, None), ("unuse", ONE, None)])
    await uses.close()


async def test_the_end_of_the_earlier_use_waits_for_the_owner_s_first_command() -> None:
    agents, instance = Agents(), slot()
    uses = uses_of(agents, Sidecar(TWO), after_claim=0.1)
    await uses.use("n1", ONE, instance)
    instance.laid = Laid(ONE)
    uses.laid(instance, before=Laid(TWO))
    await asyncio.sleep(0)
    await uses.use("n1", TWO, instance)
    instance.laid = Laid(TWO)
    uses.laid(instance, before=Laid(ONE))
    await until(lambda: len(agents.calls) == 4)
    assert agents.calls == [("use", ONE, None), ("use", TWO, None), ("unuse", TWO, 1.0), ("unuse", ONE, 2.0)]
    await uses.close()


async def test_without_the_time_of_a_use_the_earlier_one_ends_at_once() -> None:
    agents, instance = Agents(), slot()
    agents.told_since = False
    uses = uses_of(agents, Sidecar(TWO), after_claim=3600.0)
    await uses.use("n1", ONE, instance)
    instance.laid = Laid(ONE)
    uses.laid(instance, before=Laid(TWO))
    await until(lambda: agents.calls == [("use", ONE, None), ("unuse", TWO, None)])
    await uses.close()


async def test_a_gateway_that_stops_finishes_what_it_tells() -> None:
    agents, instance = Agents(), slot()
    agents.open.clear()
    uses = uses_of(agents, Sidecar(TWO))
    await uses.use("n1", TWO, instance)
    instance.laid = Laid(TWO)
    uses.laid(instance, before=Laid(ONE))
    closing = asyncio.create_task(uses.close())
    await asyncio.sleep(0.05)
    assert not closing.done()
    agents.open.set()
    await closing
    assert agents.calls == [("use", TWO, None), ("unuse", ONE, 1.0)]


class Pool:
    """Answers each request with `answer`, or raises it."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.targets: list[str] = []
        self.headers: list[Any] = []

    async def fetch(self, address: str, method: str, target: str, **options: Any) -> Any:
        self.targets.append(f"{method} {target}")
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def agents_of(pool: Pool, token: Path) -> NodeAgents:
    token.write_text("token\n")
    agents = NodeAgents(pool=cast("Any", pool), token_file=token, timeout=1.0)
    agents.changed(
        Pod(metadata=Metadata(name="a"), spec=PodSpec(node_name="n1"), status=PodStatus(pod_ip="10.0.0.1"))
    )
    return agents


async def test_no_name_leads_to_another_route_of_the_agent(tmp_path: Path) -> None:
    pool = Pool(SimpleNamespace(status=204, body=b""))
    agents = agents_of(pool, tmp_path / "token")
    await agents.unuse("n1", "../x?y#z", slot="a/b", until=1.5)
    assert pool.targets == ["DELETE /v1/images/..%2Fx%3Fy%23z/uses/a%2Fb?until=1.5"]


async def test_a_use_tells_since_when(tmp_path: Path) -> None:
    body = json.dumps({"id": ONE, "rootfs": "/x", "since": 1795000000.123456}).encode()
    agents = agents_of(Pool(SimpleNamespace(status=200, body=body)), tmp_path / "token")
    assert (await agents.use("n1", ONE, slot="a")).since == 1795000000.123456


async def test_a_token_that_cannot_be_read_again_is_an_agent_that_is_away(tmp_path: Path) -> None:
    pool = Pool(SimpleNamespace(status=401, body=b""))
    agents = agents_of(pool, tmp_path / "token")
    (tmp_path / "token").unlink()
    with pytest.raises(AgentUnreachable, match="check --node-agent-token-file"):
        await agents.images("n1")
    pool.answer = ValueError("invalid header")
    with pytest.raises(AgentUnreachable, match="does not answer"):
        await agents.images("n1")


class Node(Agents):
    """A node agent with one image; `failure` is raised by its lists."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = {"n1"}
        self.failure: Exception | None = RuntimeError("unexpected")
        self.lists = 0

    async def images(self, node: str) -> list[Prepared]:
        self.lists += 1
        if self.failure is not None:
            raise self.failure
        return [Prepared(ONE, "/images/rootfs", names=["one:1"])]

    async def prepare(self, node: str, image: str, *, slot: str = SLOT, **options: Any) -> Any:
        return Prepared(ONE, "/images/rootfs", names=["one:1"])


async def test_what_fails_once_ends_no_looks_at_nodes() -> None:
    node = Node()
    settings = KubernetesSettings(image_list_pause=0.0)
    images = KubernetesImages(cast("Any", node), pool=cast("Any", Sidecar(None)), settings=settings)
    images.start()
    await until(lambda: node.lists >= 2)
    node.failure = None
    await until(lambda: images.nodes_with("one:1") == {"n1"})
    await images.close()


async def test_a_node_whose_agent_answers_no_claim_comes_last_at_once() -> None:
    node = Node()
    images = KubernetesImages(
        cast("Any", node), pool=cast("Any", Sidecar(None)), settings=KubernetesSettings(agent_outage=7.0)
    )
    await images.claim("one:1", tenant="t", instance=slot())
    assert images.nodes_with("one:1") == {"n1"}
    node.answers = False
    with pytest.raises(NodeFailed) as caught:
        await images.claim("one:1", tenant="t", instance=slot())
    assert (caught.value.lasts, images.nodes_with("one:1")) == (7.0, ())
    await images.close()
