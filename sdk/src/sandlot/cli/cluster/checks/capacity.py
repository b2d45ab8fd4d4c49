"""Checks the nodes that may run sandboxes, by each runtime class in use: ready, schedulable, without pressure, with room."""

from __future__ import annotations

from collections.abc import Iterator

from ..api import Unread
from ..doc import Doc, json_of, walk
from ..finding import Finding, ok, problem
from ..sizes import gpu_resource
from ..world import Kind, World
from . import room
from .classes import used
from .words import several

_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
_SHOWN = 10


def check(world: World) -> Iterator[Finding]:
    nodes = world.list(Kind.NODES)
    settings = world.settings("controller")
    selector = json_of(settings.get("SANDLOT_NODE_SELECTOR", "{}"), {})
    wanted = {(str(name), str(value)) for name, value in selector.items()}
    tolerated = [Doc(one) for one in walk(json_of(settings.get("SANDLOT_TOLERATIONS", "[]"), []))]
    default = settings.get("SANDLOT_RUNTIME_CLASS", "")
    faulty: dict[str, str] = {}
    takers: dict[str, list[Doc]] = {}
    gpu_takers: dict[str, list[Doc]] = {}
    # Kubernetes' admission plugin ExtendedResourceToleration adds it to the pods that request the resource.
    gpu_toleration = Doc({"key": gpu_resource(settings), "operator": "Exists"})
    for name, found in _classes(world, default):
        label = "nodes" if name == default else f"nodes of runtime class {name}"
        # Kubernetes adds these to what the pod says itself.
        own = set(found.pairs("scheduling", "nodeSelector").items())
        if own and not _with(nodes, own):
            continue  # told with the class
        chosen = _with(nodes, wanted | own)
        faulty |= {one.name: why for one in chosen if (why := _fault(one))}
        if chosen:
            sound = [one for one in chosen if one.name not in faulty]
            tolerations = tolerated + found.docs("scheduling", "tolerations")
            open_ones = [one for one in sound if not _is_cordoned(one)]
            takers[name] = [one for one in open_ones if not _repels(one, tolerations)]
            gpu_takers[name] = [one for one in open_ones if not _repels(one, [*tolerations, gpu_toleration])]
            yield _taking(world, label, len(chosen), sound, takers[name])
        else:
            words = ", ".join(f"{key}={value}" for key, value in sorted(wanted | own))
            yield problem(
                label,
                f"none of {len(nodes)} nodes has the labels that sandboxes require ({words or 'none'})",
                "label nodes, or correct sandboxes.pods.nodeSelector",
            )
    for name, why in list(faulty.items())[:_SHOWN]:
        yield problem(
            f"node {name}",
            why,
            f"kubectl describe node {name}; its sandboxes are lost if it does not come back",
        )
    if len(faulty) > _SHOWN:
        yield problem("other nodes", f"{len(faulty) - _SHOWN} more nodes have faults", "kubectl get nodes")
    yield from room.check(world, takers, gpu_takers, default=default)


def _classes(world: World, default: str) -> Iterator[tuple[str, Doc]]:
    """Yield the runtime classes that sandboxes have; an empty name is the nodes' own runtime."""
    names = dict.fromkeys((default, *used(world)))
    found = {one.name: one for one in world.list(Kind.RUNTIME_CLASSES)} if any(names) else {}
    for name in names:
        if not name or name in found:
            yield name, found.get(name, Doc({}))


def _with(nodes: list[Doc], labels: set[tuple[str, str]]) -> list[Doc]:
    return [one for one in nodes if labels <= one.labels.items()]


def _taking(world: World, label: str, of: int, sound: list[Doc], takers: list[Doc]) -> Finding:
    cordoned = [one.name for one in sound if _is_cordoned(one)]
    others = {one.name for one in takers}.union(cordoned)
    tainted = [one.name for one in sound if one.name not in others]
    said = f"{len(takers)} of {of} take new sandboxes"
    for what, names in (("cordoned", cordoned), ("tainted", tainted)):
        said += f"; {what}: {', '.join(several(names))}" if names else ""
    if takers:
        requested = world.requested
        return ok(
            label, said if isinstance(requested, Unread) else f"{said}; {room.spoken(takers, requested)}"
        )
    return problem(label, said, "uncordon or repair nodes, add some, or set sandboxes.pods.tolerations")


def _is_cordoned(node: Doc) -> bool:
    return node.value("spec", "unschedulable") is True


def _repels(node: Doc, tolerations: list[Doc]) -> bool:
    """Return whether a taint keeps new sandboxes off the node."""
    taints = [one for one in node.docs("spec", "taints") if one.text("effect") in ("NoSchedule", "NoExecute")]
    return any(not any(_tolerates(each, taint) for each in tolerations) for taint in taints)


def _tolerates(toleration: Doc, taint: Doc) -> bool:
    if toleration.text("effect") not in ("", taint.text("effect")):
        return False
    if toleration.text("operator") == "Exists":
        return toleration.text("key") in ("", taint.text("key"))
    return (toleration.text("key"), toleration.text("value")) == (taint.text("key"), taint.text("value"))


def _fault(node: Doc) -> str:
    ready = node.condition("Ready")
    if ready.text("status") != "True":
        return (
            f"it is not ready: {ready.text('message') or ready.text('reason') or 'no kubelet has reported'}"
        )
    pressures = [one for one in _PRESSURES if node.condition(one).text("status") == "True"]
    return f"it reports {', '.join(pressures)}" if pressures else ""
