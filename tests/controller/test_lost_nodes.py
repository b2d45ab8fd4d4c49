"""A silent node counts as lost when the API server says so, too, whatever the watch has shown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import cast

import pytest
from sandlot_controller.act.api import Api
from sandlot_controller.act.lost_nodes import LostNodes
from sandlot_controller.world.nodes import Node
from sandlot_controller.world.world import World
from sandlot_kube.client import KubeClient
from sandlot_kube.errors import KubeError, KubeUnreachable

from tests.controller import virtual_time
from tests.controller.played import running, settings_in
from tests.controller.test_world import node, pod
from tests.waiting import loop_turns, until

GRACE = 30.0


class Asked:
    """The world by its watches, and the API server's answers, of which the last one counts from then on."""

    def __init__(self, *, clock: Callable[[], float] | None = None) -> None:
        """`clock`: None: it shows `now`."""
        self.now = 0.0
        self.count = 0
        self.answers: list[Node | Exception | None] = []
        self.while_asked: Callable[[], None] = lambda: None
        self.world = World(clock=clock or (lambda: self.now))
        self.watches = self.world.reflectors(cast(KubeClient, None), namespace="s")
        for watch in self.watches:
            watch.watching_since = 0.0
        self.world.node_changed(node("n-1", "True"))
        self.world.pod_changed(pod("i-1", node="n-1"))
        self.world.node_changed(node("n-1", "Unknown"))

    async def node(self, name: str) -> Node | None:
        assert name == "n-1"
        self.count += 1
        self.while_asked()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def later(self, now: float = 1000.0) -> None:
        """Let the grace pass, and tell of it, as a clock that jumps ends no wait."""
        self.now = now
        self.world.pod_changed(self.world.pods["i-1"])

    def is_lost(self) -> bool:
        due = self.world.node_lost_at("n-1", grace=GRACE)
        return due is not None and due <= self.world.clock()


@pytest.fixture
async def asked(tmp_path: Path) -> AsyncIterator[Asked]:
    asked = Asked()
    lost = LostNodes(asked.world, cast(Api, asked), settings=settings_in(tmp_path, node_grace=GRACE))
    async with running(lost.run()):
        yield asked


@pytest.mark.parametrize("answer", [node("n-1", "Unknown"), None])
async def test_one_that_is_away_is_lost(asked: Asked, answer: Node | None) -> None:
    asked.answers = [answer]
    told: list[str] = []
    asked.world.pod_listeners.append(lambda pod, _: told.append(pod.metadata.name))
    asked.now = GRACE - 1.0
    assert asked.world.node_lost_at("n-1", grace=GRACE) == GRACE
    assert asked.count == 0
    asked.later()
    assert not asked.is_lost()
    told.clear()
    await until(asked.is_lost)
    assert told == ["i-1"]
    assert asked.count == 1


async def test_the_silence_of_one_that_is_back_begins_again(asked: Asked) -> None:
    """Its watch has yet to show it, and may show the next loss as late: the API server is asked after each grace."""
    asked.answers = [node("n-1", "True"), node("n-1", "Unknown")]
    asked.later()
    await until(lambda: asked.world.node_lost_at("n-1", grace=GRACE) == 1000.0 + GRACE)
    asked.later(2000.0)
    await until(asked.is_lost)
    assert asked.count == 2


async def test_each_silence_is_confirmed(asked: Asked) -> None:
    asked.answers = [node("n-1", "Unknown")]
    asked.later()
    await until(asked.is_lost)
    asked.world.node_changed(node("n-1", "True"))
    asked.world.node_changed(node("n-1", "Unknown"))
    assert asked.world.node_lost_at("n-1", grace=GRACE) == 1000.0 + GRACE
    asked.later(2000.0)
    await until(asked.is_lost)
    assert asked.count == 2


async def test_a_pod_that_comes_to_a_lost_node_has_it_confirmed_once_more(asked: Asked) -> None:
    """The scheduler knew that it is back, and the watch of the pods showed it first."""
    asked.answers = [node("n-1", "Unknown"), node("n-1", "True")]
    asked.later()
    await until(asked.is_lost)
    asked.world.pod_changed(pod("i-2", node="n-1"))
    assert not asked.is_lost()
    await until(lambda: asked.count == 2)
    await until(lambda: asked.world.node_lost_at("n-1", grace=GRACE) == 1000.0 + GRACE)


async def test_one_of_which_the_api_server_may_not_tell_is_lost_by_its_watch(asked: Asked) -> None:
    asked.answers = [KubeError(status=403, reason="Forbidden", message="nodes is forbidden")]
    asked.later()
    await until(asked.is_lost)
    assert asked.count == 1


async def test_one_of_which_the_api_server_says_nothing_is_not_lost(asked: Asked) -> None:
    asked.answers = [KubeUnreachable("no answer in time"), node("n-1", "Unknown")]
    losses: list[bool] = []
    asked.while_asked = lambda: losses.append(asked.is_lost())
    asked.later()
    await until(asked.is_lost)
    assert losses == [False, False]


async def test_an_answer_that_the_watch_overtook_does_not_count(asked: Asked) -> None:
    """The node was back, and is silent again."""

    def overtake() -> None:
        asked.world.node_changed(node("n-1", "True"))
        asked.world.node_changed(node("n-1", "Unknown"))

    asked.answers = [node("n-1", "Unknown")]
    asked.while_asked = overtake
    asked.later()
    await until(lambda: asked.count == 1)
    await loop_turns(10)
    assert not asked.is_lost()
    assert asked.world.silent_since == {"n-1": 1000.0}
    asked.while_asked = lambda: None
    asked.later(2000.0)
    await until(asked.is_lost)


async def test_while_its_watch_fails_no_node_is_asked_for(asked: Asked) -> None:
    asked.answers = [node("n-1", "Unknown")]
    for watch in asked.watches:
        watch.failure = "broken"
    asked.later()
    await loop_turns(10)
    assert asked.count == 0
    assert not asked.is_lost()
    for watch in asked.watches:
        watch.failure, watch.watching_since = None, asked.now - 5.0
    asked.later()
    await until(asked.is_lost)


def lost_in(
    directory: Path, answers: list[Node | Exception | None], *, broken_until: float | None = None
) -> tuple[float, int]:
    """When a node that is silent from 0 on, and of which no watch has news, is lost; and after how many waits."""

    async def lost() -> tuple[float, int]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, virtual_time.VirtualLoop)
        asked = Asked(clock=loop.time)
        asked.answers = answers
        lost = asyncio.Event()
        asked.world.node_listeners.append(lambda _: lost.set() if asked.is_lost() else None)
        nodes = LostNodes(asked.world, cast(Api, asked), settings=settings_in(directory, node_grace=GRACE))
        async with running(nodes.run()), asyncio.TaskGroup() as group:
            if broken_until is not None:
                group.create_task(break_until(asked, broken_until))
            await lost.wait()
            return loop.time(), loop.waits

    return virtual_time.run(lost())


async def break_until(asked: Asked, until: float) -> None:
    for watch in asked.watches:
        watch.failure = "broken"
    await asyncio.sleep(until)
    for watch in asked.watches:
        watch.failure, watch.watching_since = None, asked.world.clock()


def test_a_silence_is_waited_for_until_it_is_due(tmp_path: Path) -> None:
    assert lost_in(tmp_path, [node("n-1", "Unknown")]) == (GRACE, 1)


def test_a_silence_that_began_again_is_waited_for_until_it_is_due(tmp_path: Path) -> None:
    assert lost_in(tmp_path, [node("n-1", "True"), node("n-1", "Unknown")]) == (2 * GRACE, 2)


def test_the_end_of_a_gap_in_the_watch_is_noticed_without_news(tmp_path: Path) -> None:
    """A node is silent for sure when the watch has caught up, in 5 s."""
    at, waits = lost_in(tmp_path, [node("n-1", "Unknown")], broken_until=102.0)
    assert at == 107.0
    assert waits < 30
