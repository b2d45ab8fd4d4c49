"""What follows from the watches alone: since when a node is silent, since when a pod's end waits for its reason."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from sandlot_controller.act import facts
from sandlot_controller.world.nodes import Node
from sandlot_controller.world.world import World
from sandlot_kube.objects import Pod, Sandbox


class Clock:
    def __init__(self) -> None:
        self.now = 1.0

    def __call__(self) -> float:
        return self.now


def pod(name: str, *, node: str | None = None, **status: Any) -> Pod:
    return msgspec.convert({"metadata": {"name": name}, "spec": {"nodeName": node}, "status": status}, Pod)


def record(generation: int, phase: str, *, pod: str = "i-1") -> Sandbox:
    body = {
        "metadata": {"name": f"sb-{generation}"},
        "spec": {"template": {"image": "x"}, "podName": pod, "generation": generation},
        "status": {"phase": phase},
    }
    return msgspec.convert(body, Sandbox)


def node(name: str, ready: str) -> Node:
    conditions = [{"type": "Ready", "status": ready}]
    return msgspec.convert({"metadata": {"name": name}, "status": {"conditions": conditions}}, Node)


def test_a_node_that_no_watch_has_shown_is_silent_until_it_is_shown() -> None:
    clock = Clock()
    world = World(clock=clock)
    world.pod_changed(pod("i-1", node="n-1"))
    clock.now = 2.0
    world.pod_changed(pod("i-2", node="n-1"))
    assert world.silent_since == {"n-1": 1.0}
    world.node_changed(node("n-1", "Unknown"))
    assert world.silent_since == {"n-1": 1.0}
    world.node_changed(node("n-1", "True"))
    assert world.silent_since == {}
    world.pod_changed(pod("i-3", node="n-1"))
    assert world.silent_since == {}


def test_a_removed_node_is_forgotten_with_the_last_of_its_pods() -> None:
    clock = Clock()
    world = World(clock=clock)
    world.node_changed(node("n-1", "True"))
    for name in ("i-1", "i-2"):
        world.pod_changed(pod(name, node="n-1"))
    world.node_deleted(world.nodes["n-1"])
    world.pod_deleted(world.pods["i-1"])
    assert world.silent_since == {"n-1": 1.0}
    world.pod_deleted(world.pods["i-2"])
    clock.now = 1000.0
    world.pod_changed(pod("i-3", node="n-1"))  # a new node of this name, whose pod is shown first
    assert world.silent_since == {"n-1": 1000.0}
    world.pod_changed(pod("i-3", node="n-2"))  # made again, unseen
    assert world.silent_since == {"n-2": 1000.0}


def test_a_node_that_is_removed_without_pods_is_not_remembered() -> None:
    world = World(clock=Clock())
    for ready in ("True", "Unknown"):
        world.node_changed(node("n-1", ready))
        world.node_deleted(world.nodes["n-1"])
        assert world.silent_since == {}


def test_a_silent_node_stays_silent_when_its_last_pod_goes() -> None:
    clock = Clock()
    world = World(clock=clock)
    world.node_changed(node("n-1", "Unknown"))
    clock.now = 2.0
    world.pod_changed(pod("i-1", node="n-1"))
    world.pod_deleted(world.pods["i-1"])
    assert world.silent_since == {"n-1": 1.0}


def test_the_pod_of_a_cold_start_that_waited_for_its_turn_has_its_time_from_when_it_is_there() -> None:
    clock = Clock()
    world = World(clock=clock)
    world.sandbox_changed(
        msgspec.convert({"metadata": {"name": "i-1"}, "spec": {"template": {"image": "x"}}}, Sandbox)
    )
    clock.now = 400.0
    world.pod_changed(pod("i-1", node="n-1"))
    assert facts.of_pod(world, world.pods["i-1"], node_grace=30.0).first_seen == 400.0
    world.pod_deleted(world.pods["i-1"])
    clock.now = 800.0
    world.pod_changed(pod("i-1", node="n-2"))  # made again, for another node
    assert facts.of_pod(world, world.pods["i-1"], node_grace=30.0).first_seen == 400.0
    world.pod_deleted(world.pods["i-1"])
    world.sandbox_deleted(world.sandboxes["i-1"])
    assert world.pod_seen == {}


def test_an_end_without_a_reason_counts_from_when_it_was_told_first() -> None:
    clock = Clock()
    world = World(clock=clock)
    world.pod_changed(pod("i-1"))
    assert world.uncertain_since == {}
    for clock.now in (2.0, 3.0):
        world.pod_changed(pod("i-1", phase="Succeeded"))
    assert world.uncertain_since == {"i-1": 2.0}
    world.pod_deleted(pod("i-1"))
    assert world.uncertain_since == {}


def test_a_claim_without_a_record_stays_one_when_an_earlier_record_changes() -> None:
    world = World(clock=Clock())
    world.pod_changed(pod("i-1"))
    world.sandbox_changed(record(1, "Running"))
    world.sandbox_changed(record(1, "Ended"))
    assert not world.claimed("i-1")
    world.claimed_without_record("i-1", 2)
    world.sandbox_changed(record(1, "Ended"))
    assert world.unrecorded_since == {"i-1": 1.0}, "generation 2 has an owner"
    world.sandbox_changed(record(2, "Running"))
    assert world.unrecorded_since == {}
    assert world.claims == {"i-1": "sb-2"}


def test_a_claim_of_an_unknown_generation_is_recorded_by_the_sandbox_that_has_the_pod() -> None:
    world = World(clock=Clock())
    world.pod_changed(pod("i-1"))
    world.sandbox_changed(record(1, "Ended"))
    world.claimed_without_record("i-1")
    world.sandbox_changed(record(1, "Ended"))
    assert world.claimed("i-1")
    world.sandbox_changed(record(2, "Running"))
    assert world.unrecorded_since == {}


def test_a_late_record_of_the_claimed_generation_counts_also_if_it_has_ended() -> None:
    world = World(clock=Clock())
    world.pod_changed(pod("i-1"))
    world.claimed_without_record("i-1", 2)
    world.sandbox_changed(record(1, "Running"))
    assert world.unrecorded_since == {"i-1": 1.0}
    world.sandbox_changed(record(2, "Ended"))
    assert not world.claimed("i-1")


@pytest.mark.parametrize("told", list(itertools.permutations(["pods", "2", "3"])))
def test_the_latest_generation_decides_in_whatever_order_the_lists_come(told: tuple[str, ...]) -> None:
    world = World(clock=Clock())
    news: dict[str, Callable[[], None]] = {
        "pods": lambda: world.pods_replaced([pod("i-1")]),
        "2": lambda: world.sandbox_changed(record(2, "Running")),  # its gateway died before its end
        "3": lambda: world.sandbox_changed(record(3, "Ended")),
    }
    for one in told:
        news[one]()
    assert world.claims == {}
    world.pods_replaced([])
    world.sandbox_changed(record(1, "Running"))
    assert world.claims == {"i-1": "sb-2"}, "of a pod that is gone, nothing is remembered"


def test_a_listener_that_fails_keeps_nothing_from_the_others() -> None:
    """Else the rest of a list would be missing, and pods of its Sandboxes would count as nobody's."""
    world = World(clock=Clock())
    heard: list[str] = []

    def fails(pod: Pod, _: bool) -> None:
        if pod.metadata.name == "i-1":
            raise ValueError(pod.metadata.name)

    world.pod_listeners += [fails, lambda pod, _: heard.append(pod.metadata.name)]
    world.pods_replaced([pod("i-1"), pod("i-2")])
    assert heard == list(world.pods) == ["i-1", "i-2"]
