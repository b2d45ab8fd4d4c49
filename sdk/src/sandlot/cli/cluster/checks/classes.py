"""Checks that the RuntimeClasses and PriorityClasses exist that pods of sandboxes name, and nodes for them."""

from __future__ import annotations

from collections.abc import Iterator

from ..doc import Doc
from ..finding import Finding, ok, problem
from ..world import Kind, World


def used(world: World) -> dict[str, list[str]]:
    """Return the RuntimeClasses that the chart and the pools name, with who names each. Raises NotRead."""
    users: dict[str, list[str]] = {}
    default = world.settings("controller").get("SANDLOT_RUNTIME_CLASS", "")
    if default:
        users[default] = ["the chart's default (gvisor.runtimeClass)"]
    for pool in world.list(Kind.POOLS, world.release.sandboxes):
        if name := pool.text("spec", "template", "runtimeClass"):
            users.setdefault(name, []).append(f"pool {pool.name}")
    return users


def runtime(world: World) -> Iterator[Finding]:
    users = used(world)
    if not users:
        yield ok("runtime classes", "none is set: sandboxes run under the nodes' default runtime")
    found = {one.name: one for one in world.list(Kind.RUNTIME_CLASSES)} if users else {}
    for name, named in users.items():
        label, said = f"runtime class {name}", f"named by {', '.join(named)}"
        if name not in found:
            yield problem(
                label,
                f"it does not exist, {said}",
                "create it (gvisor.createRuntimeClass), or name another in the pool's template",
            )
            continue
        selector = found[name].pairs("scheduling", "nodeSelector")
        nodes = [one for one in world.list(Kind.NODES) if selector.items() <= one.labels.items()]
        if nodes:
            yield ok(label, f"it exists, {said}; {len(nodes)} nodes match")
        else:
            words = ", ".join(f"{key}={value}" for key, value in selector.items())
            yield problem(
                label,
                f"no node has its labels ({words}), {said}",
                "label the nodes that have this runtime, or correct gvisor.nodeSelector",
            )


def priority(world: World) -> Iterator[Finding]:
    wanted = {world.settings("controller").get("SANDLOT_PRIORITY_CLASS", "")}
    for workload in [one or Doc({}) for one in map(world.workload, ("gateway", "controller"))]:
        wanted.add(workload.text("spec", "template", "spec", "priorityClassName"))
    found = {one.name for one in world.list(Kind.PRIORITY_CLASSES)} if wanted - {""} else set[str]()
    for name in sorted(wanted - {""}):
        label = f"priority class {name}"
        if name in found:
            yield ok(label, "it exists")
        else:
            yield problem(
                label,
                "it does not exist, so the API server refuses pods that name it",
                "restore it: helm upgrade with priorityClasses.create",
            )
