"""Placement of 10,000 slots on 1,000 simulated nodes: the time it takes, the nodes it uses, the starts of a node, and the
sandboxes whose node has their image.
"""

from __future__ import annotations

import time

from sandlot_controller.plan.placement.ledger import Ledger
from sandlot_controller.plan.placement.nodes import NodeView

from loadtests.placement import image_simulation
from loadtests.placement.simulation import CAP, NODE, SANDLOT, Simulation, bound, shapes
from loadtests.reading import Reading

ROWS = ("placement_time", "placement_packing", "placement_starts", "placement_images")
SLOTS, NODES = 10_000, 1_000


def placement(*, slots: int = SLOTS, nodes: int = NODES) -> dict[str, Reading]:
    """Measure the rows of this file."""
    simulation = Simulation(SANDLOT, nodes=nodes, slots=slots)
    begun = time.process_time()
    simulation.burst()
    took = time.process_time() - begun
    outcome = simulation.outcome
    used, least = _packed(slots, nodes)
    return {
        "placement_time": Reading(
            value=took,
            parts={"a slot": f"{took / slots * 1e6:.0f} µs", "choices": str(outcome.choices)},
        ),
        "placement_packing": Reading(value=least / used, parts={"nodes": str(used), "at least": str(least)}),
        "placement_starts": Reading(
            value=outcome.most_starting / CAP, parts={"at once on a node": str(outcome.most_starting)}
        ),
        "placement_images": _images(nodes, slots_per_node=slots // nodes),
    }


def _images(nodes: int, *, slots_per_node: int) -> Reading:
    """Return the share of sandboxes that found their image on their node, beside those of kube-scheduler's models."""
    ours, *others = image_simulation.compare(nodes=nodes, slots_per_node=slots_per_node).items()
    _, outcome = ours
    told = {
        "sandboxes": str(outcome.claims),
        "pulls": str(outcome.pulls),
        "a choice": f"{outcome.choice * 1e6:.0f} µs",
        **{name: f"{other.share:.3f}" for name, other in others},
    }
    return Reading(value=outcome.share, parts=told)


def _packed(slots: int, nodes: int) -> tuple[int, int]:
    """Return the nodes in use after slots came one after the other, and the fewest that could hold them."""
    ledger = Ledger(strategy="pack")
    for number in range(nodes):
        ledger.put_node(NodeView(f"node-{number:05}", NODE))
    used: set[str] = set()
    kinds = shapes(slots)
    for number, needs in enumerate(kinds):
        node = ledger.choose(needs, cap=CAP)
        assert isinstance(node, str)
        ledger.put(f"slot-{number}", needs, node=node, starting=False)
        used.add(node)
    return len(used), bound(kinds)
