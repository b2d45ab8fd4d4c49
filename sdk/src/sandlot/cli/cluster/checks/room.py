"""Checks how many more pods of each pool fit on the nodes, by what all pods request of these now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..api import Unread
from ..doc import Doc
from ..finding import Finding, ok, problem, unchecked
from ..pod_requests import Amounts, allocatable, fitting, total
from ..quantities import quantity
from ..sizes import gpu_labels, gpu_resource, pool_sizes
from ..world import Kind, World

_GIB = 1 << 30
_BASIC = ("cpu", "memory")


def check(
    world: World, takers: Mapping[str, list[Doc]], gpu_takers: Mapping[str, list[Doc]], *, default: str
) -> Iterator[Finding]:
    """`takers`, and `gpu_takers` of pods with GPUs: the nodes that take new sandboxes, by runtime class.

    Another check reports a class without any.
    """
    pools = world.list(Kind.POOLS, world.release.sandboxes)
    if isinstance(world.requested, Unread):
        yield unchecked(
            "nodes: room for pools",
            f"the requests of all pods cannot be read: {world.requested.reason}",
            "ask for the right to list the pods of all namespaces, or let an administrator of the cluster run this",
        )
        return
    sizes = {size.pool: size.whole.requests for size in pool_sizes(world)}
    gpu = gpu_resource(world.settings("controller"))
    for pool in pools:
        name = pool.text("spec", "template", "runtimeClass") or default
        size = _with_overhead(world, name, sizes[pool.name])
        if nodes := (gpu_takers if size.get(gpu) else takers).get(name):
            yield _room(world, pool, nodes, size, world.requested)


def spoken(nodes: list[Doc], requested: Mapping[str, Amounts], *, more: tuple[str, ...] = ()) -> str:
    """Return what pods request of these nodes, and of how much; `more`: resources beside cores and memory."""
    has = total(allocatable(node) for node in nodes)
    used = total(requested.get(node.name, {}) for node in nodes)

    def part(name: str) -> str:
        scale, unit = _unit(name)
        if name in _BASIC or scale > 1:
            return f"{used.get(name, 0) / scale:.1f} of {has.get(name, 0) / scale:.1f} {unit}"
        return f"{used.get(name, 0):.0f} of {has.get(name, 0):.0f} {unit}"

    parts = [part(name) for name in (*_BASIC, *more)]
    parts[0] = parts[0].replace(" of ", " of their ", 1)
    return f"pods request {_joined(parts)}, and are {used.get('pods', 0):.0f} of at most {has.get('pods', 0):.0f}"


def _room(
    world: World, pool: Doc, nodes: list[Doc], size: Amounts, requested: Mapping[str, Amounts]
) -> Finding:
    settings = world.settings("controller")
    label = f"nodes: room for pool {pool.name}"
    wanted = gpu_labels(pool, settings)
    chosen = [one for one in nodes if wanted.items() <= one.labels.items()]
    gpu = gpu_resource(settings)
    if chosen and size.get(gpu) and not any(allocatable(one).get(gpu) for one in chosen):
        return unchecked(
            label,
            f"no node offers {gpu}, of which its pods request {size[gpu]:.0f} each",
            "install the device plugin (docs/gpus.md); what a DRA driver gives out is not counted here",
        )
    more = sum(fitting(one, requested.get(one.name, {}), size) for one in chosen)
    further = tuple(name for name, each in size.items() if each and name not in _BASIC)
    each = [_each(name, size[name]) for name in (*_BASIC, *further)]
    said = f"{more} more pods fit, which request {_joined(each)} each"
    if not chosen:
        said += (
            f"; no node that takes sandboxes has {', '.join(f'{key}={kind}' for key, kind in wanted.items())}"
        )
    if more or not _lacks(world, pool):
        return ok(label, said)
    return problem(
        label,
        f"{said}, and the pool lacks some; {spoken(chosen or nodes, requested, more=further)}",
        "add nodes, make pools smaller, or lower sandboxes.pods.cpuShare and memoryShare",
    )


def _each(name: str, amount: float) -> str:
    scale, unit = _unit(name)
    return f"{amount / scale:.2f} {unit}" if name in _BASIC or scale > 1 else f"{amount:.0f} {unit}"


def _unit(name: str) -> tuple[float, str]:
    """Return what an amount is divided by, and the unit then."""
    named = {"cpu": (1, "cores"), "memory": (_GIB, "GiB"), "ephemeral-storage": (_GIB, "GiB of disk")}
    return named.get(name, (1, name))


def _joined(parts: list[str]) -> str:
    return " and ".join(part for part in (", ".join(parts[:-1]), parts[-1]) if part)


def _lacks(world: World, pool: Doc) -> bool:
    """Return whether the pool has fewer pods than it should, or one that has no node."""
    pods = [one for one in world.pods("sandbox") if one.labels.get("sandlot.dev/pool") == pool.name]
    waiting = [one for one in pods if not one.text("spec", "nodeName")]
    counts = {name: pool.number("status", name) for name in ("size", "ready", "starting")}
    return bool(waiting) or counts["ready"] + counts["starting"] < counts["size"]


def _with_overhead(world: World, runtime_class: str, size: Amounts) -> Amounts:
    classes = world.list(Kind.RUNTIME_CLASSES) if runtime_class else []
    found = next((one for one in classes if one.name == runtime_class), Doc({}))
    fixed = found.pairs("overhead", "podFixed")
    return total([size, {name: quantity(text) or 0.0 for name, text in fixed.items()}])
