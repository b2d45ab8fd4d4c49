"""Models how kube-scheduler 1.36 scores nodes: its resources, their balance and images, each with the default weight 1.

It looks at every node for each pod, where kube-scheduler takes a sample of large clusters, and it takes no time: both
favour it. Nodes with equal scores are chosen by chance, as there.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Mapping

from sandlot_controller.plan.placement.candidates import Candidates
from sandlot_controller.plan.placement.ledger import NoNode
from sandlot_controller.plan.placement.needs import Needs
from sandlot_controller.plan.placement.nodes import NodeView

_SCORED = ("cpu", "memory")
_MOST = 100  # of a score
_MB = 1 << 20
_LEAST_IMAGE, _MOST_IMAGE = 23 * _MB, 1000 * _MB  # thresholds of ImageLocality for a pod with one container


class SchedulerModel:
    """Has the calls of the controller's ledger that the simulations need. `most_allocated`: else LeastAllocated."""

    def __init__(self, *, most_allocated: bool = False) -> None:
        self._most = most_allocated
        self._nodes: dict[str, NodeView] = {}
        self._used: dict[str, Counter[str]] = {}
        self._pods: dict[str, tuple[Needs, str]] = {}
        self._kinds: dict[Needs, tuple[Candidates, dict[str, int]]] = {}  # with each fitting node's score
        self._random = random.Random(1)

    def put_node(self, node: NodeView) -> None:
        self._nodes[node.name] = node
        self._used[node.name] = Counter()
        self._score(node.name, self._kinds)

    def put(self, pod: str, needs: Needs, *, node: str, starting: bool) -> None:
        """Add a pod; whether it is still starting changes nothing here."""
        if pod in self._pods:
            return
        self._pods[pod] = needs, node
        self._used[node].update(dict(needs.requests))
        self._score(node, self._kinds)

    def drop(self, pod: str) -> None:
        needs, node = self._pods.pop(pod)
        self._used[node].subtract(dict(needs.requests))
        self._score(node, self._kinds)

    def choose(
        self, needs: Needs, *, cap: int, holders: Collection[str] = (), image_bytes: int = 0
    ) -> str | NoNode:
        """Return the node for a pod; `holders` have its image, `cap` is not for it."""
        if needs not in self._kinds:
            self._kinds[needs] = Candidates(needs), {}
            for name in self._nodes:
                self._score(name, [needs])
        candidates, scores = self._kinds[needs]
        best = candidates.best()
        if best is None:
            return NoNode.FULL
        bonus = self._locality(image_bytes, spread=len(holders) / len(self._nodes))
        if not bonus or best in holders:
            return best
        most = max((scores.get(name, -bonus) for name in holders), default=0)
        if most + bonus <= scores[best]:
            return best
        return self._random.choice([name for name in holders if scores.get(name) == most])

    def fullness(self, node: str) -> float:
        """Return the used share of the node's scarcest resource."""
        room = self._nodes[node].allocatable
        return max((amount / room[name] for name, amount in self._used[node].items()), default=0.0)

    @staticmethod
    def _locality(image_bytes: int, *, spread: float) -> int:
        """Return the score of ImageLocality for nodes that have the image, as `spread` of all nodes do."""
        scaled = min(max(int(image_bytes * spread), _LEAST_IMAGE), _MOST_IMAGE)
        return _MOST * (scaled - _LEAST_IMAGE) // (_MOST_IMAGE - _LEAST_IMAGE)

    def _score(self, name: str, kinds: Collection[Needs]) -> None:
        used, room = self._used[name], self._nodes[name].allocatable
        for needs in kinds:
            candidates, scores = self._kinds[needs]
            wanted = dict(needs.requests)
            if any(used[each] + amount > room[each] for each, amount in wanted.items()):
                candidates.drop(name)
                scores.pop(name, None)
                continue
            scores[name] = self._resources(used, wanted, room) + _balance(used, wanted, room)
            # Each score is a whole number: chance decides between equal ones only.
            candidates.put(name, (False, -scores[name] + self._random.random() / 2, name))

    def _resources(self, used: Counter[str], wanted: dict[str, int], room: Mapping[str, int]) -> int:
        total = 0
        for each in _SCORED:
            taken = used[each] + wanted[each]
            total += _MOST * (taken if self._most else room[each] - taken) // room[each]
        return total // len(_SCORED)


def _balance(used: Counter[str], wanted: dict[str, int], room: Mapping[str, int]) -> int:
    """Return the score of NodeResourcesBalancedAllocation, which compares the balance with and without the pod."""
    without = _evenness(*(used[each] / room[each] for each in _SCORED))
    with_pod = _evenness(*((used[each] + wanted[each]) / room[each] for each in _SCORED))
    return _MOST // 2 + (_MOST // 2 + with_pod - without) // 2


def _evenness(cpu: float, memory: float) -> int:
    return int((1 - abs(min(cpu, 1.0) - min(memory, 1.0)) / 2) * _MOST)
