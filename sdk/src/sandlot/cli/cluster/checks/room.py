"""Checks how many more pods of each pool fit on the nodes, by what all pods request of these now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..api import Unread
from ..doc import Doc
from ..finding import Finding, ok, problem, unchecked
from ..pod_requests import Amounts, allocatable, fitting
from ..quantities import quantity
from ..sizes import pool_sizes
from ..world import Kind, World

_GIB = 1 << 30


def check(world: World, takers: Mapping[str, list[Doc]], *, default: str) -> Iterator[Finding]:
    """`takers`: by runtime class, the nodes that take new sandboxes; a class without any is told elsewhere."""
    pools = world.list(Kind.POOLS, world.release.sandboxes)
    if isinstance(world.requested, Unread):
        yield unchecked(
            "nodes: room for pools",
            f"the requests of all pods cannot be read: {world.requested.reason}",
            "ask for the right to list the pods of all namespaces, or let an administrator of the cluster run this",
        )
        return
    sizes = {size.pool: size.whole.requests for size in pool_sizes(world)}
    for pool in pools:
        name = pool.text("spec", "template", "runtimeClass") or default
        if nodes := takers.get(name):
            yield _room(world, pool, nodes, _with_overhead(world, name, sizes[pool.name]), world.requested)


def spoken(nodes: list[Doc], requested: Mapping[str, Amounts]) -> str:
    """Return what pods request of these nodes, and of how much."""
    has, used = Amounts(), Amounts()
    for node in nodes:
        has += allocatable(node)
        used += requested.get(node.name, Amounts())
    return (
        f"pods request {used.cpu:.1f} of their {has.cpu:.1f} cores and {used.memory / _GIB:.1f} of "
        f"{has.memory / _GIB:.1f} GiB, and are {used.pods:.0f} of at most {has.pods:.0f}"
    )


def _room(
    world: World, pool: Doc, nodes: list[Doc], size: dict[str, float], requested: Mapping[str, Amounts]
) -> Finding:
    cpu, memory = size["cpu"], size["memory"]
    more = sum(fitting(one, requested.get(one.name, Amounts()), cpu=cpu, memory=memory) for one in nodes)
    label = f"nodes: room for pool {pool.name}"
    said = f"{more} more pods fit, which request {cpu:.2f} cores and {memory / _GIB:.2f} GiB each"
    if more or not _lacks(world, pool):
        return ok(label, said)
    return problem(
        label,
        f"{said}, and the pool lacks some; {spoken(nodes, requested)}",
        "add nodes, make pools smaller, or lower sandboxes.pods.cpuShare and memoryShare",
    )


def _lacks(world: World, pool: Doc) -> bool:
    """Return whether the pool has fewer pods than it should, or one that has no node."""
    pods = [one for one in world.pods("sandbox") if one.labels.get("sandlot.dev/pool") == pool.name]
    waiting = [one for one in pods if not one.text("spec", "nodeName")]
    counts = {name: pool.number("status", name) for name in ("size", "ready", "starting")}
    return bool(waiting) or counts["ready"] + counts["starting"] < counts["size"]


def _with_overhead(world: World, runtime_class: str, size: dict[str, float]) -> dict[str, float]:
    classes = world.list(Kind.RUNTIME_CLASSES) if runtime_class else []
    found = next((one for one in classes if one.name == runtime_class), Doc({}))
    return {
        name: amount + (quantity(found.text("overhead", "podFixed", name)) or 0.0)
        for name, amount in size.items()
    }
