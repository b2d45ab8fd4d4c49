"""A node as the planner sees it, and whether its labels and taints admit a pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sandlot_kube.objects import Toleration

from .needs import Needs

_SOFT = "PreferNoSchedule"


@dataclass(frozen=True, slots=True)
class Taint:
    key: str = ""
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class NodeView:
    """`usable`: it is ready and not drained. `allocatable`: in the units of `Needs.requests`."""

    name: str
    allocatable: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    usable: bool = True

    def admits(self, needs: Needs) -> bool:
        """Return whether the scheduler may place such a pod here, whatever room there is."""
        return (
            self.usable
            and all(self.labels.get(name) == value for name, value in needs.selector)
            and all(taint.effect == _SOFT or is_tolerated(taint, needs.tolerations) for taint in self.taints)
        )

    def is_discouraged(self, needs: Needs) -> bool:
        """Return whether other nodes are preferred; an autoscaler marks those so that it wants to empty."""
        return any(
            taint.effect == _SOFT and not is_tolerated(taint, needs.tolerations) for taint in self.taints
        )


def is_tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(_tolerates(one, taint) for one in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.value == taint.value
