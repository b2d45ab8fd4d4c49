"""The rights that gateway and controller need, as the chart's roles give them, and those of the caller."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Right:
    """`place`: sandboxes, release or cluster."""

    group: str
    resource: str  # with its subresource
    verbs: tuple[str, ...]
    place: str
    name: str = ""


_READ = ("get", "list", "watch")
_OURS = "sandlot.dev"

GATEWAY = (
    Right("", "pods", _READ, "sandboxes"),
    Right("", "configmaps", ("get", "list", "create", "update", "delete"), "sandboxes"),
    Right(_OURS, "sandboxes", (*_READ, "create", "patch", "delete"), "sandboxes"),
    Right(_OURS, "sandboxpools", (*_READ, "create", "patch", "delete"), "sandboxes"),
    Right(_OURS, "imagewarmups", ("get", "list", "create", "delete"), "sandboxes"),
    Right(_OURS, "sandboxes/status", ("patch",), "sandboxes"),
    Right("discovery.k8s.io", "endpointslices", ("list",), "release"),
)
CONTROLLER = (
    Right("", "pods", (*_READ, "create", "delete", "deletecollection"), "sandboxes"),
    Right(_OURS, "sandboxes", (*_READ, "delete", "deletecollection"), "sandboxes"),
    Right(_OURS, "sandboxpools", _READ, "sandboxes"),
    Right(_OURS, "imagewarmups", (*_READ, "delete"), "sandboxes"),
    Right(_OURS, "sandboxes/status", ("patch",), "sandboxes"),
    Right(_OURS, "sandboxpools/status", ("patch",), "sandboxes"),
    Right(_OURS, "imagewarmups/status", ("patch",), "sandboxes"),
    Right("", "nodes", _READ, "cluster"),
)
# Of the caller, beside what is listed: logs of sidecars, and forwards to the metrics of gateways and controllers.
CALLER = (
    Right("", "pods/log", ("get",), "sandboxes"),
    Right("", "pods/portforward", ("create",), "release"),
)


def lease(name: str) -> Right:
    """Return the controller's right to the Lease of this name."""
    return Right("coordination.k8s.io", "leases", ("get", "update"), "release", name)


def webhooks(name: str) -> Right:
    """Return the controller's right to the Service of this name, whose address it gives to sidecars."""
    return Right("", "services", ("get",), "release", name)
