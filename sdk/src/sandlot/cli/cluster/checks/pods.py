"""Checks the sandboxes' pods: what keeps those that do not run from it, with the events that say why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from .. import times
from ..api import Listing
from ..finding import Finding, ok, problem
from ..waits import waits
from ..world import Kind, World

_ADVICE = {
    "image": "correct the image, or give the nodes its pull secret (sandboxes.pods.imagePullSecrets)",
    "config": "create what the message names",
    "crash": "read the container's log: kubectl logs POD -c CONTAINER --previous",
    "schedule": "add nodes or lower the pools' sizes; for labels and taints see sandboxes.pods.nodeSelector and tolerations",
    "start": "docs/troubleshooting.md has the usual causes; kubectl describe pod shows all events",
}
_GROUPS = 10


def check(world: World) -> Iterator[Finding]:
    label = f"pods of {world.release.sandboxes}"
    found = world.pods("sandbox")
    events = _events(world)
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for pod in found:
        for wait in waits(pod, now=world.now):
            told = events.get(pod.name, "")
            text = f"{wait.text}: {told}" if told and wait.of == "start" else wait.text
            groups[wait.of, text].append(pod.name)
    for (of, text), names in list(groups.items())[:_GROUPS]:
        which = names[0] if len(names) == 1 else f"{len(names)} pods, such as {names[0]}"
        yield problem(label, f"{which}: {text}", _ADVICE[of])
    if len(groups) > _GROUPS:
        yield problem(
            label, f"{len(groups) - _GROUPS} more reasons for which pods wait", "correct these first"
        )
    if not groups:
        running = sum(pod.text("status", "phase") == "Running" for pod in found)
        yield ok(
            label,
            f"{running} run, {len(found) - running} start or end; none waits for something that does not come",
        )


def _events(world: World) -> dict[str, str]:
    """Return the latest warning of each pod; without the right to read events, none."""
    found = world.readings.get((Kind.EVENTS, world.release.sandboxes))
    events = found.items if isinstance(found, Listing) else []
    ordered = sorted(events, key=lambda one: times.seconds(one.text("lastTimestamp")) or 0.0)
    return {
        one.text("involvedObject", "name"): f"{one.text('reason')}: {' '.join(one.text('message').split())}"
        for one in ordered
        if one.text("involvedObject", "kind") == "Pod"
    }
