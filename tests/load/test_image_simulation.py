"""The simulation of a data set's images, in small: the same sandboxes for each placer, and the shares that differ."""

from __future__ import annotations

from loadtests.placement.image_simulation import compare


def test_slots_find_more_images_on_their_nodes_than_pods_do() -> None:
    ours, default, most = compare(nodes=100).values()
    assert ours.claims == default.claims == most.claims == 1600
    assert ours.share > max(default.share, most.share)
    assert most.nodes < default.nodes
    for outcome in (ours, default, most):
        assert outcome.pulls >= outcome.claims - outcome.local


def test_a_warm_up_saves_pulls() -> None:
    (warm, *_), (cold, *_) = compare(nodes=100).values(), compare(nodes=100, warm=False).values()
    assert warm.pulls < cold.pulls
    assert warm.share > cold.share
