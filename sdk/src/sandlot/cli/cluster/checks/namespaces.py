"""Checks what a namespace refuses: privileged pods, pods beyond a quota, and sizes outside of a LimitRange."""

from __future__ import annotations

from collections.abc import Iterator

from ..doc import Doc
from ..finding import Finding, ok, problem, unchecked
from ..quantities import quantity
from ..sizes import PodSize, pool_sizes
from ..world import Kind, World

_ENFORCE = "pod-security.kubernetes.io/enforce"


def admission(world: World) -> Iterator[Finding]:
    name = world.release.sandboxes
    label = f"namespace {name}"
    found = next((one for one in world.list(Kind.NAMESPACES) if one.name == name), None)
    if found is None:
        yield problem(label, "it does not exist", "restore it: helm upgrade with sandboxes.createNamespace")
        return
    if found.text("metadata", "deletionTimestamp"):
        yield problem(
            label, "it is being deleted, so it takes no pods", "wait until it is gone, then helm upgrade"
        )
        return
    level = found.labels.get(_ENFORCE, "")
    if level in ("", "privileged"):
        said = (
            "admits privileged pods"
            if level
            else "has no Pod Security level, and the cluster's default applies"
        )
        yield ok(label, said)
    else:
        yield problem(
            label,
            f"its Pod Security level is {level}, which refuses the privileged container of the sidecar",
            f"kubectl label namespace {name} {_ENFORCE}=privileged --overwrite",
        )


def quotas(world: World) -> Iterator[Finding]:
    inside = world.release.sandboxes
    pools = world.list(Kind.POOLS, inside)
    lacking = {pool.name for pool in pools if _lacks(pool)}
    sizes = [size for size in pool_sizes(world) if size.pool in lacking]
    for namespace in (world.release.namespace, inside):
        for one in world.list(Kind.QUOTAS, namespace):
            full = list(_full(one, sizes) if pools and namespace == inside else _used_up(one))
            label = f"quota {namespace}/{one.name}"
            if full and _scoped(one):
                advice = "look at its scopes; the pools' messages tell whether it refuses their pods"
                yield unchecked(label, f"it counts only some pods: {'; '.join(full)}", advice)
            elif full:
                advice = "raise the quota, or make the pools smaller; pods are refused until there is room"
                yield problem(label, "; ".join(full), advice)
            else:
                yield ok(
                    label, "it has room for what the pools lack" if namespace == inside else "it has room"
                )


def limits(world: World) -> Iterator[Finding]:
    sizes = pool_sizes(world)
    for one in world.list(Kind.LIMITS, world.release.sandboxes):
        refused = [
            text for limit in one.docs("spec", "limits") for size in sizes for text in _refused(limit, size)
        ]
        label = f"limit range {one.namespace}/{one.name}"
        if refused:
            advice = "change the LimitRange, or the pool's template; its pods are refused until then"
            yield problem(label, "; ".join(dict.fromkeys(refused)), advice)
        else:
            yield ok(label, "it allows the pods of all pools")


def _scoped(quota: Doc) -> bool:
    return bool(quota.texts("spec", "scopes")) or quota.value("spec", "scopeSelector") is not None


def _lacks(pool: Doc) -> bool:
    """Return whether the pool needs another pod; one that is full may fill its quota, too."""
    size = pool.number("status", "size") or pool.number("spec", "size")
    return pool.number("status", "ready") + pool.number("status", "starting") < size


def _full(quota: Doc, sizes: list[PodSize]) -> Iterator[str]:
    """Yield the resources of which too little is left for another pod of the largest of these sizes."""
    for resource, text in quota.pairs("status", "hard").items():
        given = quota.pairs("status", "used").get(resource, "0")
        hard, used = quantity(text), quantity(given)
        need = max((one.quota(resource) for one in sizes), default=0.0)
        if hard is not None and used is not None and need and used + need > hard:
            yield f"{resource}: {given} of {text} used, and another pod does not fit"


def _used_up(quota: Doc) -> Iterator[str]:
    """Yield the number of pods if no pod of any size fits."""
    for resource, text in quota.pairs("status", "hard").items():
        hard, used = quantity(text), quantity(quota.pairs("status", "used").get(resource, "0"))
        if resource in ("pods", "count/pods") and hard is not None and used is not None and used >= hard:
            yield f"{resource}: {text} of {text} used"


def _refused(limit: Doc, size: PodSize) -> Iterator[str]:
    kind = limit.text("type")
    containers = size.containers if kind == "Container" else [size.whole] if kind == "Pod" else []
    for container in containers:
        what = f"pool {size.pool}: {container.name}"
        for resource in ("cpu", "memory"):
            most, least = (
                quantity(limit.pairs("max").get(resource, "")),
                quantity(limit.pairs("min").get(resource, "")),
            )
            ratio = quantity(limit.pairs("maxLimitRequestRatio").get(resource, ""))
            request, cap = container.requests[resource], container.limits[resource]
            if most is not None and cap > most:
                yield f"{what} has a {resource} limit of {_shown(cap)}, above the maximum {_shown(most)}"
            if least is not None and request < least:
                yield f"{what} requests {_shown(request)} {resource}, below the minimum {_shown(least)}"
            if ratio is not None and (not request or cap / request > ratio * 1.000001):
                yield f"{what} has a {resource} limit of more than {ratio:g} times its request"


def _shown(value: float) -> str:
    return f"{value / (1 << 20):.0f}Mi" if value >= 1 << 20 else f"{value:g}"
