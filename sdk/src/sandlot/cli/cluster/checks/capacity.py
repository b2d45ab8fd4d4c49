"""Checks the nodes that may run sandboxes: ready, schedulable, without pressure."""

from __future__ import annotations

from collections.abc import Iterator

from ..doc import Doc, json_of
from ..finding import Finding, ok, problem
from ..world import Kind, World
from .words import several

_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")


def check(world: World) -> Iterator[Finding]:
    nodes = world.list(Kind.NODES)
    selector = json_of(world.settings("controller").get("SANDLOT_NODE_SELECTOR", "{}"), {})
    wanted = {str(name): str(value) for name, value in selector.items()}
    chosen = [one for one in nodes if wanted.items() <= one.labels.items()]
    if not chosen:
        words = ", ".join(f"{name}={value}" for name, value in wanted.items()) or "none"
        yield problem(
            "nodes",
            f"none of {len(nodes)} nodes has the labels that sandboxes require ({words})",
            "label nodes, or correct sandboxes.pods.nodeSelector",
        )
        return
    faulty = {one.name: why for one in chosen if (why := _fault(one))}
    for name, why in faulty.items():
        yield problem(
            f"node {name}",
            why,
            f"kubectl describe node {name}; its sandboxes are lost if it does not come back",
        )
    free = [
        one for one in chosen if one.name not in faulty and one.value("spec", "unschedulable") is not True
    ]
    cordoned = [one.name for one in chosen if one.value("spec", "unschedulable") is True]
    said = f"{len(free)} of {len(chosen)} take new sandboxes"
    if not free:
        yield problem("nodes", said, "uncordon or repair nodes, or add some")
    else:
        yield ok("nodes", said + (f"; cordoned: {', '.join(several(cordoned))}" if cordoned else ""))


def _fault(node: Doc) -> str:
    ready = node.condition("Ready")
    if ready.text("status") != "True":
        return (
            f"it is not ready: {ready.text('message') or ready.text('reason') or 'no kubelet has reported'}"
        )
    pressures = [one for one in _PRESSURES if node.condition(one).text("status") == "True"]
    return f"it reports {', '.join(pressures)}" if pressures else ""
