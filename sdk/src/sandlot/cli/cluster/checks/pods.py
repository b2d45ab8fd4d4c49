"""Checks the sandboxes' pods: what keeps those that do not run from it, with the events that say why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ..finding import Finding, ok, problem
from ..waits import waits
from ..warnings import explained, warnings
from ..world import World

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
    told = warnings(world, world.release.sandboxes)
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for pod in found:
        for wait in waits(pod, now=world.now):
            groups[wait.of, explained(wait, told)].append(pod.name)
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
