"""Finds the release of the chart that is to be checked, by the labels of its Deployments."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .doc import Doc, environment
from .kubectl import CannotRun

SELECTOR = "app.kubernetes.io/name=sandlot"


@dataclass(frozen=True, slots=True)
class Release:
    name: str  # Helm's
    namespace: str  # of gateway and controller
    sandboxes: str  # the namespace of the sandboxes

    @property
    def selector(self) -> str:
        return f"{SELECTOR},app.kubernetes.io/instance={self.name}"


def find(deployments: Iterable[Doc], *, namespace: str | None, name: str | None) -> Release:
    """Return the only release, or the one with this name. Raises CannotRun."""
    found: dict[tuple[str, str], list[Doc]] = {}
    for one in deployments:
        instance = one.labels.get("app.kubernetes.io/instance", "")
        if one.component in ("gateway", "controller") and name in (None, instance):
            found.setdefault((one.namespace, instance), []).append(one)
    where = f"namespace {namespace}" if namespace else "the cluster"
    wanted = f"the release {name}" if name else "a release of Sandlot"
    if not found:
        raise CannotRun(
            f"{where} has no Deployment of {wanted}: install the chart, "
            "or name its namespace with --namespace, and the cluster with --context"
        )
    if len(found) > 1:
        names = ", ".join(f"{instance} in {inside}" for inside, instance in sorted(found))
        raise CannotRun(f"{where} has several releases ({names}): choose one with --namespace and --release")
    ((inside, instance), members) = next(iter(found.items()))
    sandboxes = [value for one in members if (value := environment(one).get("SANDLOT_NAMESPACE"))]
    return Release(instance, inside, sandboxes[0] if sandboxes else f"{instance}-sandboxes")
