"""Nodes and needs as the planner sees them, made of few words."""

from __future__ import annotations

from sandlot_controller.plan.placement.ledger import Ledger, Strategy
from sandlot_controller.plan.placement.needs import Needs
from sandlot_controller.plan.placement.nodes import NodeView

GIB = 1 << 30
CAP = 3  # of pods that start on a node


def needs(cpu: int = 100, memory: int = GIB, **more: int) -> Needs:
    """CPU in millicores."""
    return Needs(tuple(sorted({"cpu": cpu, "memory": memory, "pods": 1, **more}.items())))


SMALL = needs(100)


def node(name: str, *, cpu: int = 64_000, memory: int = 512 * GIB, pods: int = 1000, **more: int) -> NodeView:
    return NodeView(name, {"cpu": cpu, "memory": memory, "pods": pods, **more})


def ledger_of(*nodes: NodeView, strategy: Strategy = "pack") -> Ledger:
    ledger = Ledger(strategy=strategy)
    for one in nodes:
        ledger.put_node(one)
    return ledger
