"""Which pods are on which nodes, and the node that a new pod gets: an incremental structure without clock or I/O."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from .candidates import Candidates
from .needs import Needs
from .new_nodes import NewNodes
from .nodes import NodeView
from .rejections import Rejections

Strategy = Literal["pack", "spread"]
_KINDS = 32  # of pods whose candidates are kept up to date
# Kinds of pods that may wait for a node at once: all are looked at with each event, and half of `_KINDS` can be.
_WAITING_KINDS = 16


class NoNode(Enum):
    """Why a pod gets no node."""

    FULL = "no node has room, so that it may wait for a new one"
    ENOUGH_WAIT = "no node has room, and as many such pods wait for one as may"
    AT_CAP = "all nodes with room have as many starts as they may"


@dataclass(slots=True)
class _Load:
    """What our pods use of a node."""

    used: dict[str, int] = field(default_factory=dict)
    starting: int = 0


@dataclass(frozen=True, slots=True)
class _Pod:
    needs: Needs
    node: str | None
    starting: bool


class Ledger:
    """Pods by name and nodes by name. Other workloads are known from rejections only."""

    def __init__(self, *, strategy: Strategy = "pack") -> None:
        self._sign = -1.0 if strategy == "pack" else 1.0
        self._nodes: dict[str, NodeView] = {}
        self._new_nodes = NewNodes(self._nodes)
        self._loads: dict[str, _Load] = {}  # also of nodes that are not shown yet
        self._pods: dict[str, _Pod] = {}
        self._unplaced: dict[Needs, set[str]] = {}
        self._rejections = Rejections()
        self._kinds: OrderedDict[tuple[Needs, int | None], Candidates] = OrderedDict()

    # What is there.

    def put_node(self, node: NodeView) -> None:
        """Add or replace a node."""
        if self._nodes.get(node.name) != node:
            self._new_nodes.changed()
        self._nodes[node.name] = node
        self._refresh(node.name)

    def drop_node(self, name: str) -> None:
        self._nodes.pop(name, None)
        self._new_nodes.changed()
        self._rejections.forget(name)
        self._refresh(name)

    def put(self, pod: str, needs: Needs, *, node: str | None, starting: bool) -> None:
        """Add or replace a pod, on a node or meant for it; None: the scheduler may choose any node."""
        new = _Pod(needs, node, starting)
        old = self._pods.get(pod)
        if old == new:
            return
        if old is not None:
            self._take(pod, old, refresh=old.node != node)
        self._pods[pod] = new
        if node is None:
            self._unplaced.setdefault(needs, set()).add(pod)
            return
        load = self._loads.setdefault(node, _Load())
        load.starting += starting
        for name, amount in needs.requests:
            load.used[name] = load.used.get(name, 0) + amount
        self._refresh(node)

    def drop(self, pod: str) -> None:
        if (old := self._pods.pop(pod, None)) is not None:
            self._take(pod, old, refresh=True)

    def __contains__(self, pod: object) -> bool:
        return pod in self._pods

    def needs(self, pod: str) -> Needs | None:
        known = self._pods.get(pod)
        return known.needs if known is not None else None

    def reject(self, pod: str, resources: Iterable[str], *, now: float) -> None:
        """Drop a pod that the scheduler could not place on its node, for lack of these resources (none: unknown why)."""
        old = self._pods.get(pod)
        self.drop(pod)
        if old is None or old.node is None or (node := self._nodes.get(old.node)) is None:
            return
        load, requests = self._loads.get(node.name, _Load()), dict(old.needs.requests)
        others = {
            name: node.allocatable.get(name, 0) - load.used.get(name, 0) - requests[name] + 1
            for name in resources
            if name in requests
        }
        self._rejections.add(node.name, others, now=now)
        self._refresh(node.name)

    def expire(self, now: float) -> float | None:
        """Forget old rejections; return when the next one is due."""
        for node in self._rejections.expire(now):
            self._refresh(node)
        return self._rejections.next_at()

    # What follows from it.

    def choose(self, needs: Needs, *, cap: int, wanted: int = 1) -> str | NoNode:
        """Return the node for a new pod. `cap`: pods that may start at once on a node, or wait for one.

        `wanted`: such pods that are missing, this one included. The pods that wait show an autoscaler which nodes are
        wanted, so as many may wait as can start at once on all nodes that the missing ones need: with fewer it would
        add one node after the other. Each kind of pod has its own limit: those of a kind that no node will ever fit
        would otherwise hide all others.
        """
        if (node := self._candidates(needs, cap).best()) is not None:
            return node
        if self.has_room(needs):
            return NoNode.AT_CAP
        waiting = self.unplaced(needs)
        most = cap * self._new_nodes.wanted(needs, waiting + wanted)
        may_wait = waiting < most and (waiting > 0 or len(self._unplaced) < _WAITING_KINDS)
        return NoNode.FULL if may_wait else NoNode.ENOUGH_WAIT

    def has_room(self, needs: Needs) -> bool:
        """Return whether some node could take such a pod, if it may start there or not."""
        return self._candidates(needs, None).best() is not None

    def unplaced(self, needs: Needs) -> int:
        """Return the number of pods with these needs that the scheduler may put on any node."""
        return len(self._unplaced.get(needs, ()))

    def unplaced_with_room(self) -> list[str]:
        """Return the pods that the scheduler may put on any node, and that some node could take by now."""
        return [pod for needs, pods in self._unplaced.items() if self.has_room(needs) for pod in sorted(pods)]

    def fullness(self, node: str) -> float:
        """Return the used share of the node's scarcest resource."""
        view, load = self._nodes.get(node), self._loads.get(node)
        if view is None or load is None:
            return 0.0
        return _fullness(view, load, self._rejections.others(node))

    @contextmanager
    def trial(self) -> Iterator[Callable[[Needs, int, int], str | NoNode]]:
        """Choose nodes for several pods, each as if the ones before were there; nothing of it stays."""
        made: list[str] = []
        numbers = itertools.count()

        def place(needs: Needs, cap: int, wanted: int) -> str | NoNode:
            found = self.choose(needs, cap=cap, wanted=wanted)
            if isinstance(found, str) or found is NoNode.FULL:
                made.append(f"trial {next(numbers)}")
                self.put(made[-1], needs, node=found if isinstance(found, str) else None, starting=True)
            return found

        try:
            yield place
        finally:
            for name in made:
                self.drop(name)

    def _take(self, name: str, pod: _Pod, *, refresh: bool) -> None:
        if pod.node is None:
            waiting = self._unplaced[pod.needs]
            waiting.discard(name)
            if not waiting:
                del self._unplaced[pod.needs]
            return
        load = self._loads[pod.node]
        load.starting -= pod.starting
        for resource, amount in pod.needs.requests:
            load.used[resource] -= amount
        if not any(load.used.values()):
            del self._loads[pod.node]
        if refresh:
            self._refresh(pod.node)

    def _candidates(self, needs: Needs, cap: int | None) -> Candidates:
        kind = needs, cap
        known = self._kinds.get(kind)
        if known is not None:
            self._kinds.move_to_end(kind)
            return known
        made = self._kinds[kind] = Candidates(needs, cap=cap)
        for node in self._nodes:
            self._rank(node, [made])
        if len(self._kinds) > _KINDS:
            self._kinds.popitem(last=False)
        return made

    def _refresh(self, node: str) -> None:
        self._rank(node, self._kinds.values())

    def _rank(self, name: str, kinds: Iterable[Candidates]) -> None:
        node = self._nodes.get(name)
        if node is None or self._rejections.is_closed(name):
            for kind in kinds:
                kind.drop(name)
            return
        load, others = self._loads.get(name, _EMPTY), self._rejections.others(name)
        order = self._sign * _fullness(node, load, others)
        for kind in kinds:
            if (kind.cap is None or load.starting < kind.cap) and _fits(kind.needs, node, load, others):
                kind.put(name, (node.is_discouraged(kind.needs), order, name))
            else:
                kind.drop(name)


_EMPTY = _Load()


def _fits(needs: Needs, node: NodeView, load: _Load, others: Mapping[str, int]) -> bool:
    used, room = load.used, node.allocatable
    for name, amount in needs.requests:
        if used.get(name, 0) + others.get(name, 0) + amount > room.get(name, 0):
            return False
    return node.admits(needs)


def _fullness(node: NodeView, load: _Load, others: Mapping[str, int]) -> float:
    shares = (
        (amount + others.get(name, 0)) / room
        for name, amount in load.used.items()
        if (room := node.allocatable.get(name, 0)) > 0
    )
    return max(shares, default=0.0)
