"""A node agent and a sidecar as image uses see them, played in memory."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from sandlot_contract.ids import InstanceId
from sandlot_contract.template import Template
from sandlot_gateway.backends.kubernetes.image_uses import ImageUses
from sandlot_gateway.backends.kubernetes.node_agents import AgentError, AgentUnreachable, Prepared, Progress
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.data.pool import DialError

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
        after_claim=after_claim,
    )


def slot() -> Instance:
    return Instance(SLOT, Template(""), "10.0.0.7:8700", "token", node="n1")
