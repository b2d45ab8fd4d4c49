"""Which pods are on which nodes, and the node that a new pod gets: an incremental structure without clock or I/O."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from .candidates import Below, Candidates, Limit
from .load import Load, PlacedPod, fits, fullness
from .needs import Needs
from .new_nodes import NewNodes, takes
from .nodes import NodeView
from .rejections import Rejections
from .waiting import Kind, Waiting, scheduler_share

Strategy = Literal["pack", "spread"]
_KINDS = 64  # of pods whose candidates are kept up to date
# Needs of pods that may wait for a node at once: all are looked at with each event, and a quarter of `_KINDS` can be.
_WAITING_KINDS = 16


class NoNode(Enum):
    """Why a pod gets no node."""

    FULL = "no node has room, so that it may wait for a new one"
    ENOUGH_WAIT = "no node has room, and as many such pods wait for one as may"
    AT_CAP = "all nodes with room have as many starts as they may"
    ON_THE_WAY = "no node has room, but the scheduler might put a waiting pod where others are on the way to"


@dataclass(frozen=True, slots=True)
class _WaitingPod:
    kind: Kind

    @property
    def needs(self) -> Needs:
        return self.kind[0]


class Ledger:
    """Pods by name and nodes by name. Other workloads are known from rejections only.

    Two place pods: the controller chooses nodes, and the scheduler puts those that wait for a node on any with few
    pods. So that both together keep to a node's starts, in whatever order they act, the controller has at most one pod
    on the way to a node that may get a waiting one, and the scheduler leaves it that one (`scheduler_share`).
    """

    def __init__(self, *, strategy: Strategy = "pack") -> None:
        self._sign = -1.0 if strategy == "pack" else 1.0
        self._nodes: dict[str, NodeView] = {}
        self._new_nodes = NewNodes(self._nodes)
        self._loads: dict[str, Load] = {}  # also of nodes that are not shown yet
        self._on_the_way: set[str] = set()  # nodes with such pods
        self._pods: dict[str, PlacedPod | _WaitingPod] = {}
        self._waiting = Waiting()
        self._rejections = Rejections()
        self._kinds: OrderedDict[tuple[Needs, Limit | None], Candidates] = OrderedDict()

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

    def put(self, pod: str, needs: Needs, *, node: str, starting: bool, is_bound: bool = True) -> None:
        """Add or replace a pod on a node; `is_bound`: the scheduler has put it there, or is making room for it."""
        self._put(pod, PlacedPod(needs, node, starting, is_bound))

    def put_waiting(self, pod: str, needs: Needs, *, cap: int) -> None:
        """Add or replace a pod that the scheduler may put on any node, created with this limit of starts."""
        self._put(pod, _WaitingPod((needs, scheduler_share(cap))))

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
        if not isinstance(old, PlacedPod) or (node := self._nodes.get(old.node)) is None:
            return
        load, requests = self._loads.get(node.name, Load()), dict(old.needs.requests)
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
        """Return the node for a new pod. `cap`: pods that may start at once on a node.

        `wanted`: such pods that are missing, this one included. The pods that wait show an autoscaler which nodes are
        wanted, so as many may wait as the scheduler puts on all nodes that the missing ones need: with fewer it would
        add one node after the other, with more too many nodes. Each kind of pod has its own limit: those of a kind that
        no node will ever fit would otherwise hide all others.
        """
        if (node := self._candidates(needs, Limit(Below.STARTS, cap)).best()) is not None:
            return node
        if self.has_room(needs):
            return NoNode.AT_CAP
        waiting = self.unplaced(needs)
        most = scheduler_share(cap) * self._new_nodes.wanted(needs, waiting + wanted)
        if waiting >= most or (waiting == 0 and len(self._waiting.all_needs()) >= _WAITING_KINDS):
            return NoNode.ENOUGH_WAIT
        return NoNode.ON_THE_WAY if self._is_approached(needs) else NoNode.FULL

    def has_room(self, needs: Needs) -> bool:
        """Return whether some node could take such a pod, if it may start there or not."""
        return self._candidates(needs, None).best() is not None

    def unplaced(self, needs: Needs) -> int:
        """Return the number of pods with these needs that wait for a node."""
        return self._waiting.count(needs)

    def is_scheduler_next(self) -> bool:
        """Return whether the scheduler can place a waiting pod: what it leaves of the node is known afterwards."""
        return any(self._may_be_put(kind) for kind, _ in self._waiting.kinds())

    def replaceable(self) -> list[str]:
        """Return the waiting pods to be replaced by ones with a chosen node, unless the scheduler is faster.

        They are all of a kind for which the scheduler has a node, since nothing else starts until it has or they are
        gone, and else as many as have room.
        """
        found: list[str] = []
        for kind, pods in list(self._waiting.kinds()):
            found += pods if self._may_be_put(kind) else pods[: self._room(kind[0], most=len(pods))]
        return found

    def fullness(self, node: str) -> float:
        """Return the used share of the node's scarcest resource."""
        view, load = self._nodes.get(node), self._loads.get(node)
        if view is None or load is None:
            return 0.0
        return fullness(view, load, self._rejections.others(node))

    @contextmanager
    def trial(self) -> Iterator[Callable[[Needs, int, int], str | NoNode]]:
        """Choose nodes for several pods, each as if the ones before were there; nothing of it stays."""
        made: list[str] = []

        def place(needs: Needs, cap: int, wanted: int) -> str | NoNode:
            found = self.choose(needs, cap=cap, wanted=wanted)
            name = f"trial {len(made)}"
            if isinstance(found, str):
                self.put(name, needs, node=found, starting=True, is_bound=False)
            elif found is NoNode.FULL:
                self.put_waiting(name, needs, cap=cap)
            else:
                return found
            made.append(name)
            return found

        try:
            yield place
        finally:
            for name in made:
                self.drop(name)

    def _put(self, name: str, new: PlacedPod | _WaitingPod) -> None:
        old = self._pods.get(name)
        if old == new:
            return
        if old is not None:
            stays = isinstance(old, PlacedPod) and isinstance(new, PlacedPod) and old.node == new.node
            self._take(name, old, refresh=not stays)
        self._pods[name] = new
        if isinstance(new, _WaitingPod):
            if self._waiting.add(name, new.kind):
                self._refresh_approached()
            return
        self._loads.setdefault(new.node, Load()).add(new)
        self._loaded(new.node)
        self._refresh(new.node)

    def _take(self, name: str, pod: PlacedPod | _WaitingPod, *, refresh: bool) -> None:
        if isinstance(pod, _WaitingPod):
            if self._waiting.remove(name, pod.kind):
                self._refresh_approached()
            return
        self._loads[pod.node].remove(pod)
        self._loaded(pod.node)
        if refresh:
            self._refresh(pod.node)

    def _loaded(self, node: str) -> None:
        load = self._loads[node]
        (self._on_the_way.add if load.on_the_way else self._on_the_way.discard)(node)
        if load.is_empty():
            del self._loads[node]

    def _may_be_put(self, kind: Kind) -> bool:
        """Return whether the scheduler can put such a waiting pod on some node."""
        needs, share = kind
        return self._candidates(needs, Limit(Below.BOUND, share)).best() is not None

    def _is_approached(self, needs: Needs) -> bool:
        """Return whether several pods are on the way to a node that a waiting pod might get: it may come first."""
        approached = ((self._nodes.get(name), self._loads[name].on_the_way) for name in self._on_the_way)
        return any(view is not None and many > 1 and takes(view, needs) for view, many in approached)

    def _room(self, needs: Needs, *, most: int) -> int:
        """Return the number of such pods that the nodes have room for, whatever starts there."""
        made: list[str] = []
        while len(made) < most and (node := self._candidates(needs, None).best()) is not None:
            made.append(f"room {len(made)}")
            self.put(made[-1], needs, node=node, starting=False)
        for name in made:
            self.drop(name)
        return len(made)

    def _candidates(self, needs: Needs, limit: Limit | None) -> Candidates:
        kind = needs, limit
        known = self._kinds.get(kind)
        if known is not None:
            self._kinds.move_to_end(kind)
            return known
        made = self._kinds[kind] = Candidates(needs, limit=limit)
        for node in self._nodes:
            self._rank(node, [made])
        if len(self._kinds) > _KINDS:
            self._kinds.popitem(last=False)
        return made

    def _refresh(self, node: str) -> None:
        self._rank(node, self._kinds.values())

    def _refresh_approached(self) -> None:
        for node in self._on_the_way:
            self._refresh(node)

    def _rank(self, name: str, kinds: Iterable[Candidates]) -> None:
        node = self._nodes.get(name)
        if node is None or self._rejections.is_closed(name):
            for kind in kinds:
                kind.drop(name)
            return
        load, others = self._loads.get(name, _EMPTY), self._rejections.others(name)
        order = self._sign * fullness(node, load, others)
        one_at_a_time = bool(load.on_the_way) and any(takes(node, each) for each in self._waiting.all_needs())
        for kind in kinds:
            if _is_within(kind.limit, load, one_at_a_time) and fits(kind.needs, node, load, others):
                kind.put(name, (node.is_discouraged(kind.needs), order, name))
            else:
                kind.drop(name)


_EMPTY = Load()


def _is_within(limit: Limit | None, load: Load, one_at_a_time: bool) -> bool:
    if limit is None:
        return True
    if limit.below is Below.BOUND:
        return load.bound < limit.number
    return load.starting < limit.number and not one_at_a_time
