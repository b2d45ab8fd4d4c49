"""Where a warm-up's images go: popular ones on every node, within each node's budget, from one node to the next."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from sandlot_controller.plan.warmups import (
    ASSUMED_BYTES,
    LEAST,
    Copy,
    WantedImage,
    WarmNode,
    next_pulls,
    nodes_for,
    place,
    place_all,
    wanted_images,
)

IMAGES = [f"image-{number}" for number in range(12)]
NODES = [f"n{number}" for number in range(5)]

wanted_lists = st.dictionaries(st.sampled_from(IMAGES), st.integers(1, 50), max_size=12).map(
    lambda weights: [WantedImage(name, weight) for name, weight in weights.items()]
)
node_lists = st.dictionaries(
    st.sampled_from(NODES),
    st.tuples(st.integers(0, 40), st.dictionaries(st.sampled_from(IMAGES), st.integers(1, 5), max_size=4)),
    max_size=5,
).map(lambda nodes: [WarmNode(name, room, present) for name, (room, present) in nodes.items()])


def empty(count: int, *, room: int = 1 << 50) -> list[WarmNode]:
    return [WarmNode(f"n{number}", room, {}) for number in range(count)]


@given(wanted=wanted_lists, nodes=node_lists)
def test_new_copies_stay_within_the_room_of_their_node(
    wanted: list[WantedImage], nodes: list[WarmNode]
) -> None:
    plan = place(wanted, nodes)
    known = {
        image.name: max(node.present.get(image.name, 0) for node in nodes) if nodes else 0 for image in wanted
    }
    sizes = [size for size in known.values() if size]
    mean = sum(sizes) // len(sizes) if sizes else ASSUMED_BYTES
    for node in nodes:
        images = {copy.image for copy in plan.copies if copy.node == node.name}
        if images - node.present.keys():
            kept = images | {image.name for image in wanted if image.name in node.present}
            assert sum(known[name] or mean for name in kept) <= node.room
    assert len(set(plan.copies)) == len(plan.copies)
    assert {copy.image for copy in plan.copies} | set(plan.left_out) == {image.name for image in wanted}


@given(wanted=wanted_lists, nodes=node_lists)
def test_a_plan_is_the_same_in_whatever_order_it_is_asked(
    wanted: list[WantedImage], nodes: list[WarmNode]
) -> None:
    assert place(wanted, nodes) == place(wanted[::-1], nodes[::-1])


@given(wanted=wanted_lists, nodes=node_lists, per_node=st.integers(1, 3), data=st.data())
def test_every_copy_is_made_from_one_node_to_the_next(
    wanted: list[WantedImage], nodes: list[WarmNode], per_node: int, data: st.DataObject
) -> None:
    plan = place(wanted, nodes)
    present = {Copy(name, node.name) for node in nodes for name in node.present}
    pulling: set[Copy] = set()
    while True:
        begun = next_pulls(
            [copy for copy in plan.copies if copy not in present],
            somewhere={copy.image for copy in present},
            pulling=pulling,
            waiting=(),
            per_node=per_node,
        )
        pulling |= set(begun)
        busy = Counter(copy.node for copy in pulling)
        assert all(count <= per_node for count in busy.values())
        somewhere = {copy.image for copy in present}
        first = Counter(copy.image for copy in pulling if copy.image not in somewhere)
        assert all(count == 1 for count in first.values())
        if not pulling:
            break
        done = data.draw(st.sampled_from(sorted(pulling, key=lambda copy: (copy.image, copy.node))))
        pulling.remove(done)
        present.add(done)
    assert set(plan.copies) <= present


def test_popular_images_go_to_every_node_and_the_tail_to_few() -> None:
    wanted = [WantedImage("popular", 300), *(WantedImage(f"rare-{number:03}", 1) for number in range(200))]
    plan = place(wanted, empty(10))
    nodes = Counter(copy.image for copy in plan.copies)
    assert nodes["popular"] == 10
    assert {count for image, count in nodes.items() if image != "popular"} == {LEAST}
    # The tail is spread evenly.
    held = Counter(copy.node for copy in plan.copies)
    assert max(held.values()) - min(held.values()) <= 1


def test_few_images_go_to_every_node() -> None:
    assert nodes_for(1, total=3, nodes=7) == 7
    assert nodes_for(1, total=1000, nodes=1) == 1
    assert nodes_for(1, total=100, nodes=100) == 4


def test_every_image_has_a_node_before_one_has_two() -> None:
    wanted = [WantedImage(f"image-{number}", 10 - number) for number in range(4)]
    plan = place(wanted, empty(2, room=2 * ASSUMED_BYTES))
    assert [copy.image for copy in plan.copies] == ["image-0", "image-1", "image-2", "image-3"]
    assert plan.left_out == ()


def test_the_least_frequent_are_left_out_when_all_nodes_are_full() -> None:
    wanted = [WantedImage(f"image-{number}", 10 - number) for number in range(4)]
    plan = place(wanted, empty(1, room=3 * ASSUMED_BYTES))
    assert plan.left_out == ("image-3",)


def test_without_nodes_everything_is_left_out() -> None:
    plan = place([WantedImage("image", 1)], [])
    assert (plan.copies, plan.left_out) == ((), ("image",))


def test_a_copy_that_is_being_made_keeps_its_node() -> None:
    wanted = [WantedImage("image", 1), *(WantedImage(f"other-{number}", 1) for number in range(20))]
    plan = place(wanted, empty(10), pulling=[Copy("image", "n7")])
    assert plan.copies[0] == Copy("image", "n7")


def test_a_copy_that_waits_for_another_try_leaves_its_node_free_for_the_next() -> None:
    plan = place([WantedImage("a", 2), WantedImage("b", 1)], empty(1))
    assert next_pulls(plan.copies, somewhere=(), pulling=(), waiting=[Copy("a", "n0")], per_node=1) == [
        Copy("b", "n0")
    ]


def test_neither_great_weights_nor_many_images_starve_another_tenant() -> None:
    greedy = {f"greedy-{number}": 10**9 - number for number in range(50)}
    wanted = wanted_images([("greedy", greedy), ("greedy", {"more": 10**9}), ("modest", {"a": 2, "b": 1})])
    plan = place(wanted, empty(2, room=3 * ASSUMED_BYTES))
    order = [copy.image for copy in plan.copies]
    assert order[:4] == ["more", "a", "b", "greedy-0"]
    assert len(order) == 6


def test_an_image_of_two_tenants_has_the_sum_of_their_shares_and_the_earlier_turn() -> None:
    wanted = {
        image.name: image
        for image in wanted_images([("a", {"x": 3, "both": 1}), ("b", {"both": 10, "y": 10, "z": 20})])
    }
    assert (wanted["both"].weight, wanted["both"].turn) == (0.5, 1)
    assert (wanted["z"].weight, wanted["z"].turn, wanted["y"].turn) == (0.5, 0, 2)
    assert wanted_images([("a", {})]) == []


def test_an_image_goes_to_no_node_that_cannot_have_it() -> None:
    nodes = [WarmNode("n0", 1 << 50, {}, {"arm"}), WarmNode("n1", 1 << 40, {}), WarmNode("n2", 1 << 40, {})]
    plan = place([WantedImage("arm", 1), WantedImage("any", 1)], nodes)
    assert {copy.node for copy in plan.copies if copy.image == "arm"} == {"n1", "n2"}
    assert {copy.node for copy in plan.copies if copy.image == "any"} == {"n0", "n1", "n2"}
    assert place([WantedImage("arm", 1)], nodes[:1]).left_out == ("arm",)


def test_a_copy_that_failed_keeps_its_place_behind_those_that_are_there() -> None:
    nodes = [WarmNode(f"n{number}", 1 << 50, {"image": 1} if number == 3 else {}) for number in range(100)]
    others = [WantedImage(f"other-{number}", 10) for number in range(100)]
    failed = [Copy("image", "n1"), Copy("image", "n2")]
    plan = place([WantedImage("image", 1), *others], nodes, failed=failed)
    assert [copy.node for copy in plan.copies if copy.image == "image"] == ["n3", "n1"]


@given(wanted=wanted_lists, standing=wanted_lists, nodes=node_lists)
def test_images_of_finished_warm_ups_take_nothing_from_others(
    wanted: list[WantedImage], standing: list[WantedImage], nodes: list[WarmNode]
) -> None:
    alone, plan = place(wanted, nodes), place_all(wanted, standing, nodes)
    assert plan.copies[: len(alone.copies)] == alone.copies
    assert len(set(plan.copies)) == len(plan.copies)
    for node in nodes:
        copies = [copy for copy in plan.copies if copy.node == node.name]
        added = [copy for copy in copies if copy not in alone.copies and copy.image not in node.present]
        if added:
            known = {name: max(one.present.get(name, 0) for one in nodes) for name in IMAGES}
            assert sum(known[copy.image] for copy in copies) <= node.room


def test_images_of_finished_warm_ups_are_spread_as_they_were() -> None:
    standing = [WantedImage("popular", 90), WantedImage("rare", 1)]
    others = [WantedImage(f"new-{number}", 1) for number in range(50)]
    plan = place_all(others, standing, empty(20))
    copies = Counter(copy.image for copy in plan.copies)
    assert (copies["popular"], copies["rare"]) == (20, LEAST)
