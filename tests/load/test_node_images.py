"""The images of simulated nodes: pulls take their time, the budget holds, and images in use stay."""

from __future__ import annotations

from loadtests.placement.node_images import Nodes


def test_a_pull_takes_its_time_once() -> None:
    nodes = Nodes(["a", "b"], budget=2)
    assert nodes.prepare("a", "x", now=0, pull=20) == 20
    assert nodes.prepare("a", "x", now=15, pull=20) == 5, "the same pull"
    assert nodes.prepare("a", "x", now=30, pull=20) == 0
    assert nodes.pulls == 1
    assert list(nodes.holders["x"]) == ["a"]


def test_the_image_that_was_unused_for_the_longest_time_goes_first() -> None:
    nodes = Nodes(["a"], budget=2)
    for image in ("x", "y"):
        nodes.place("a", image)
    nodes.prepare("a", "x", now=0, pull=1)
    nodes.prepare("a", "z", now=1, pull=1)
    assert set(nodes.images["a"]) == {"x", "z"}
    assert nodes.holders["y"] == {}


def test_an_image_in_use_stays() -> None:
    nodes = Nodes(["a"], budget=1)
    nodes.place("a", "x")
    nodes.use("a", "x", "slot")
    nodes.prepare("a", "y", now=0, pull=1)
    nodes.use("a", "y", "other")
    assert set(nodes.images["a"]) == {"x", "y"}
    nodes.unuse("a", "x", "slot")
    nodes.prepare("a", "y", now=1, pull=1)
    assert set(nodes.images["a"]) == {"y"}
