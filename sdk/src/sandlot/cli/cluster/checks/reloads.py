"""Checks whether gateways and controllers use the present API keys, quotas, master key and certificate, by their metrics."""

from __future__ import annotations

from collections.abc import Iterator

from ..api import Unread
from ..finding import Finding, ok, problem
from ..samples import samples
from ..world import World
from .words import several


def check(world: World) -> Iterator[Finding]:
    failing: list[str] = []
    read = 0
    for component, metric, pages in (
        ("gateway", "sandlot_reload_failing", world.gateway_metrics),
        ("controller", "sandlot_controller_reload_failing", world.controller_metrics),
    ):
        for pod, page in pages.items():
            if isinstance(page, Unread):  # the checks of webhooks and of the leader say so
                continue
            found = list(samples(page, metric))
            failing += [f"{component} {pod}: {labels.get('file', '')}" for labels, value in found if value]
            read += bool(found)  # one of an earlier build has none
    label = "changed files"
    if failing:
        yield problem(
            label,
            f"some cannot be used, so the earlier ones stay valid: {'; '.join(several(failing))}",
            f"correct the Secret that has the file, or the ConfigMap of quotas (docs/keys.md, docs/quotas.md); "
            f"kubectl -n {world.release.namespace} logs POD has the reason, and no restart is needed: a new pod would not start",
        )
    elif read:
        yield ok(label, f"{read} gateways and controllers use the present keys, quotas and certificates")
