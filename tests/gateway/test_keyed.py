"""Who of several gateways brings up the sandbox of a key, when all ask each other in whatever order."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st
from sandlot_contract.ids import SandboxId
from sandlot_gateway.core.owners import KeyAnswer, KeyHolder, KeyQuestion
from sandlot_gateway.directory import Directory
from sandlot_gateway.engine.keyed import KeyedCreates
from sandlot_gateway.sandboxes import Sandbox, Spec

from tests.gateway.lives_messages import VirtualTime
from tests.waiting import loop_turns


@dataclass
class Steps:
    """How many turns of the loop each message takes, in order; one when all are used up."""

    turns: list[int]

    async def __call__(self) -> None:
        await loop_turns(self.turns.pop() if self.turns else 1)


@dataclass
class Gateway:
    steps: Steps
    gateways: list[Gateway] = field(default_factory=list)
    ours: set[str] = field(default_factory=set)
    heard_of: set[str] = field(default_factory=set)  # the ids of gateways that have asked it
    searches: int = (
        0  # questions, or looks whether it is over, during which a dead gateway's last claims are looked for
    )

    def __post_init__(self) -> None:
        self.directory = Directory()
        self.keyed = KeyedCreates(
            directory=self.directory,
            others=self,
            works_on=lambda sandbox_id: sandbox_id in self.ours,
            follows=lambda sandbox_id: False,
            asked=lambda sandbox: None,
        )

    def is_searching(self) -> bool:
        self.searches -= 1
        return self.searches >= 0

    def asked_by(self, gateway: str) -> None:
        self.heard_of.add(gateway)

    async def holder_of_key(self, question: KeyQuestion) -> KeyAnswer:
        told = await asyncio.gather(
            *(self.ask(other, question) for other in self.gateways if other is not self)
        )
        self.searches -= 1
        searching = self.searches >= 0
        holders = tuple({one for one in told if one is not None})
        return KeyAnswer(holders, all_heard=not searching, searching=searching)

    async def ask(self, other: Gateway, question: KeyQuestion) -> KeyHolder | None:
        await self.steps()
        holder = other.keyed.answer(question)
        await self.steps()
        return holder

    async def create(self, sandbox_id: str, *, after: int) -> str:
        """The id that its caller is told."""
        await loop_turns(after)
        sandbox = Sandbox(sandbox_id, "t", Spec("n", "i", key="k"), created_at=0.0, updated_at=0.0)
        self.directory.add(sandbox)
        self.ours.add(sandbox_id)
        holder = (await self.keyed.ask(sandbox, is_new=True)).holder
        if holder is not None:
            self.ours.discard(sandbox_id)
            holder = await self.keyed.agreed(sandbox, holder)
            self.directory.drop(sandbox)
        return holder.sandbox_id if holder is not None else sandbox_id


@given(
    ids=st.permutations(["sb-1", "sb-2", "sb-3"]),
    begins=st.lists(st.integers(0, 8), min_size=3, max_size=3),
    turns=st.lists(st.integers(0, 6), max_size=40),
    searches=st.lists(st.integers(0, 2), min_size=3, max_size=3),
)
def test_exactly_one_goes_on(
    ids: list[str], begins: list[int], turns: list[int], searches: list[int]
) -> None:
    async def run() -> None:
        steps = Steps(turns)
        gateways = [Gateway(steps, searches=count) for count in searches]
        for gateway in gateways:
            gateway.gateways = gateways
        told = await asyncio.gather(
            *(
                gateway.create(sandbox_id, after=after)
                for gateway, sandbox_id, after in zip(gateways, ids, begins, strict=True)
            )
        )
        [made] = [sandbox_id for gateway in gateways for sandbox_id in gateway.ours]
        assert told == [made] * 3

    with patch("sandlot_gateway.engine.keyed._SEARCH_PAUSE", 0.0):
        asyncio.run(run())


@given(
    begins=st.lists(st.integers(0, 8), min_size=2, max_size=2), turns=st.lists(st.integers(0, 6), max_size=40)
)
def test_of_two_that_take_over_the_same_sandbox_one_does(begins: list[int], turns: list[int]) -> None:
    async def run() -> None:
        steps = Steps(turns)
        gateways = [Gateway(steps), Gateway(steps)]
        for gateway in gateways:
            gateway.gateways = gateways
        went_on = await asyncio.gather(
            *(take_over(gateway, after=after) for gateway, after in zip(gateways, begins, strict=True))
        )
        assert sum(went_on) == 1

    async def take_over(gateway: Gateway, *, after: int) -> bool:
        sandbox = Sandbox("sb-1", "t", Spec("n", "i", key="k"), created_at=0.0, updated_at=0.0)
        gateway.directory.add(sandbox)
        await loop_turns(after)
        if (await gateway.keyed.ask(sandbox)).holder is not None:
            return False
        gateway.ours.add(sandbox.id)
        return True

    asyncio.run(run())


def test_one_that_is_asked_tells_which_gateway_lives() -> None:
    """One that has begun may claim: what was found of it before does not count."""

    async def run() -> None:
        steps = Steps([])
        gateways = [Gateway(steps), Gateway(steps)]
        for gateway in gateways:
            gateway.gateways = gateways
        await gateways[0].create("sb-1", after=0)
        assert len(gateways[1].heard_of) == 1
        await gateways[0].create("sb-2", after=0)
        assert len(gateways[1].heard_of) == 1

    asyncio.run(run())


def test_a_new_create_waits_for_a_search_of_many_silent_sidecars() -> None:
    """It had another sandbox after 5 s, while the sidecar of its first one was still to be asked.

    Then each asked all gateways once a second, just after one of them had died.
    """
    loop = VirtualTime()
    asked: list[float] = []

    class Others:
        async def holder_of_key(self, question: KeyQuestion) -> KeyAnswer:
            asked.append(loop.now)
            holders = () if self.is_searching() else (KeyHolder(SandboxId("sb-1")),)
            return KeyAnswer(holders, all_heard=False, searching=True)

        def is_searching(self) -> bool:
            return loop.now < asked[0] + 12.0

    _, asking = asking_for_a_key(loop, Others())
    try:
        assert wait_for(loop, asking).holder == KeyHolder(SandboxId("sb-1"))
        assert len(asked) == 2
    finally:
        loop.close()


def test_a_deleted_create_waits_for_no_search() -> None:
    """It kept its place in the queue, or an instance, until the search was over."""
    loop = VirtualTime()

    class Others:
        async def holder_of_key(self, question: KeyQuestion) -> KeyAnswer:
            return KeyAnswer((), all_heard=False, searching=True)

        def is_searching(self) -> bool:
            if loop.now >= began + 1.0:
                sandbox.finish("deleted", at=0.0)
            return True

    began = loop.now
    sandbox, asking = asking_for_a_key(loop, Others())
    try:
        wait_for(loop, asking)
        assert loop.now < began + 2.0
    finally:
        loop.close()


def asking_for_a_key(loop: VirtualTime, others: Any) -> tuple[Sandbox, asyncio.Task[KeyAnswer]]:
    """A new create that asks them."""
    keyed = KeyedCreates(
        directory=(directory := Directory()),
        others=others,
        works_on=lambda sandbox_id: True,
        follows=lambda sandbox_id: False,
        asked=lambda sandbox: None,
    )
    sandbox = Sandbox(SandboxId("sb-2"), "t", Spec("n", "i", key="k"), created_at=0.0, updated_at=0.0)
    directory.add(sandbox)
    return sandbox, loop.create_task(keyed.ask(sandbox, is_new=True))


def wait_for(loop: VirtualTime, asking: asyncio.Task[KeyAnswer]) -> KeyAnswer:
    while not asking.done():
        loop.run_until_complete(loop.rest())
        loop.now += 0.1
    return asking.result()
