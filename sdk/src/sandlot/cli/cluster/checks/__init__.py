"""The checks: pure functions from a World to findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ..finding import Finding, unchecked
from ..world import NotRead, World
from . import (
    access,
    capacity,
    classes,
    clocks,
    definitions,
    namespaces,
    network,
    pods,
    pools,
    reloads,
    secrets,
    services,
    webhooks,
    workloads,
)

Check = Callable[[World], Iterable[Finding]]

_CHECKS: tuple[tuple[str, Check], ...] = (
    ("kubectl", access.tool),
    ("your rights", access.caller),
    ("rights of the accounts", access.accounts),
    ("definitions", definitions.check),
    ("deployments", workloads.deployments),
    ("daemon sets", workloads.daemon_sets),
    ("versions", workloads.versions),
    ("leader", workloads.leader),
    ("secrets", secrets.check),
    ("volumes", secrets.volumes),
    ("changed files", reloads.check),
    ("runtime classes", classes.runtime),
    ("priority classes", classes.priority),
    ("namespace", namespaces.admission),
    ("quotas", namespaces.quotas),
    ("limit ranges", namespaces.limits),
    ("network policies", network.policies),
    ("DNS", network.dns),
    ("services", services.check),
    ("pools", pools.check),
    ("pods", pods.check),
    ("nodes", capacity.check),
    ("webhooks", webhooks.check),
    ("clocks", clocks.check),
)
_RIGHTS = "ask for the right to read it, or let an administrator of the cluster run this"


def findings(world: World) -> Iterator[Finding]:
    """Run all checks; one that lacks something it must know says so, and the others go on."""
    for name, check in _CHECKS:
        try:
            yield from check(world)
        except NotRead as error:
            yield unchecked(name, str(error), _RIGHTS)
