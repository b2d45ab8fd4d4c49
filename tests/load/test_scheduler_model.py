"""The model of kube-scheduler scores nodes as kube-scheduler's own plug-ins do."""

from __future__ import annotations

from sandlot_controller.plan.placement.ledger import NoNode

from loadtests.placement.scheduler_model import SchedulerModel
from tests.controller.placing import GIB, needs, node

ANY = 1 << 30  # no limit of starts


def model_of(*names: str, most_allocated: bool = False) -> SchedulerModel:
    model = SchedulerModel(most_allocated=most_allocated)
    for name in names:
        model.put_node(node(name, cpu=10_000, memory=10 * GIB, pods=10))
    return model


def test_the_default_spreads_and_most_allocated_packs() -> None:
    for most, expected in ((False, "b"), (True, "a")):
        model = model_of("a", "b", most_allocated=most)
        model.put("one", needs(1000), node="a", starting=True)
        assert model.choose(needs(1000), cap=ANY) == expected


def test_a_full_node_is_passed_over_and_room_that_is_given_back_is_used() -> None:
    model = model_of("a")
    for number in range(10):
        model.put(f"pod-{number}", needs(1000), node="a", starting=True)
    assert model.fullness("a") == 1
    assert model.choose(needs(1000), cap=ANY) is NoNode.FULL
    model.drop("pod-3")
    assert model.choose(needs(1000), cap=ANY) == "a"


def test_the_balance_decides_between_nodes_that_are_equally_full() -> None:
    model = model_of("cpu", "memory")
    model.put("one", needs(4000, 2 * GIB), node="cpu", starting=True)
    model.put("two", needs(2000, 4 * GIB), node="memory", starting=True)
    assert model.choose(needs(1000, 3 * GIB), cap=ANY) == "cpu"
    assert model.choose(needs(3000, 1 * GIB), cap=ANY) == "memory"


def test_equal_nodes_are_chosen_by_chance() -> None:
    names = [f"node-{number}" for number in range(50)]
    model = model_of(*names)
    found = []
    for number in range(20):
        chosen = model.choose(needs(100, GIB // 10), cap=ANY)
        assert isinstance(chosen, str)
        model.put(f"pod-{number}", needs(100, GIB // 10), node=chosen, starting=True)
        found.append(chosen)
    assert found != sorted(found), "by chance, not by name"


def test_an_image_counts_by_its_size_and_the_share_of_nodes_that_have_it() -> None:
    names = [f"node-{number}" for number in range(10)]
    small = needs(100, GIB // 10)

    def chosen(holders: list[str], *, image_bytes: int) -> str | NoNode:
        model = model_of(*names)
        for holder in holders:  # a point less by its resources
            model.put(holder, small, node=holder, starting=True)
        return model.choose(small, cap=ANY, holders=holders, image_bytes=image_bytes)

    # kube-scheduler ignores less than 23 MB, after it has multiplied the size by the share of nodes.
    assert chosen(["node-3"], image_bytes=220 << 20) != "node-3"
    assert chosen(["node-3"], image_bytes=1 << 30) == "node-3"
    assert chosen(["node-3", "node-4"], image_bytes=1 << 30) in ("node-3", "node-4")
