"""Places slots on simulated nodes by the controller's own ledger, and by models of kube-scheduler, through a burst,
churn and a shrinking; `python -m loadtests.placement.simulation` prints the comparison, and that of images.

Time is simulated: a start takes 2 s, and a node completes at most 2 a second, so more than 4 at once start no faster.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from rich import box
from rich.console import Console
from rich.table import Table
from sandlot_controller.plan.placement.ledger import Ledger, NoNode
from sandlot_controller.plan.placement.needs import Needs
from sandlot_controller.plan.placement.nodes import NodeView
from sandlot_grade.report.stats import percentile

from loadtests.placement import image_simulation
from loadtests.placement.scheduler_model import SchedulerModel

START_SECONDS = 2.0
STARTS_PER_SECOND = 2.0  # of a node
CAP = 4
LIFE = 600.0  # mean seconds until a slot is replaced
LIVES = 4  # of churn
_MIB = 1 << 20
NODE = {"cpu": 16_000, "memory": 64_000 * _MIB, "pods": 110, "ephemeral-storage": 1 << 40}
# Of templates with 1, 2, 4 and 8 cores and 1, 4, 8 and 32 GiB, with the chart's default shares; and how many of each.
_SHAPES = (((110, 288), 6), ((210, 1056), 3), ((410, 2080), 2), ((810, 8224), 1))


class Chooser(Protocol):
    """Chooses nodes for pods: the controller's ledger or a model of kube-scheduler."""

    def put_node(self, node: NodeView) -> None: ...
    def put(self, pod: str, needs: Needs, *, node: str, starting: bool) -> None: ...
    def drop(self, pod: str) -> None: ...
    def choose(self, needs: Needs, *, cap: int) -> str | NoNode: ...
    def fullness(self, node: str) -> float: ...


@dataclass(frozen=True, slots=True)
class Policy:
    """How nodes are chosen. `cap`: starts of a node at once; None: as many as come."""

    name: str
    chooser: Callable[[], Chooser]
    cap: int | None = None
    emptiest_first: bool = False  # what a smaller pool gives back

    @property
    def limit(self) -> int:
        return self.cap if self.cap is not None else 1 << 30


SANDLOT = Policy("Sandlot, pack", partial(Ledger, strategy="pack"), CAP, emptiest_first=True)
POLICIES = (
    SANDLOT,
    Policy("kube-scheduler, default", SchedulerModel),
    Policy("kube-scheduler, MostAllocated", partial(SchedulerModel, most_allocated=True)),
)


@dataclass(slots=True)
class Outcome:
    """Nodes in use ÷ the fewest that could hold the slots, after each part; and of the starts of the burst."""

    slots: int
    nodes: dict[str, int] = field(default_factory=dict)
    bounds: dict[str, int] = field(default_factory=dict)
    waits: list[float] = field(default_factory=list)  # from the demand to the running slot
    most_starting: int = 0  # on one node
    seconds: float = 0.0  # that the computation took
    choices: int = 0

    def packing(self, part: str) -> float:
        return self.bounds[part] / self.nodes[part]


def shapes(count: int) -> list[Needs]:
    """Return the needs of so many slots, mixed."""
    kinds = [kind for kind, weight in _SHAPES for _ in range(weight)]
    made = {kind: Needs((("cpu", kind[0]), ("memory", kind[1] * _MIB), ("pods", 1))) for kind, _ in _SHAPES}
    return [made[kinds[number % len(kinds)]] for number in range(count)]


def bound(needs: Sequence[Needs]) -> int:
    """Return a number of nodes below which no packing can be."""
    total: Counter[str] = Counter()
    for kind, count in Counter(needs).items():
        total.update({name: amount * count for name, amount in kind.requests})
    return max(math.ceil(total[name] / NODE[name]) for name in total)


class Simulation:
    def __init__(self, policy: Policy, *, nodes: int, slots: int) -> None:
        self.policy = policy
        self.now = 0.0
        self.outcome = Outcome(slots)
        self._ledger = policy.chooser()
        for number in range(nodes):
            self._ledger.put_node(NodeView(f"node-{number:05}", NODE))
        self._needs = shapes(slots)
        self._where: dict[int, str] = {}
        self._waiting: dict[Needs, deque[tuple[int, float]]] = {}  # slots and when they were wanted
        self._events: list[
            tuple[float, bool, int, int]
        ] = []  # when, whether a start is complete, slot, its life
        self._lives: Counter[int] = Counter()
        self._completes: dict[str, float] = {}  # the last start of each node
        self._starting: Counter[str] = Counter()
        self._churns = False
        self._random = random.Random(1)

    def run(self) -> Outcome:
        begun = time.process_time()
        self.burst()
        self._note("burst")
        self.churn(LIVES * LIFE)
        self._note("churn")
        self.shrink(self.outcome.slots // 2)
        self._note("shrink")
        self.outcome.seconds = time.process_time() - begun
        return self.outcome

    def burst(self) -> None:
        """Want all slots at once, and wait until they run."""
        for slot in range(self.outcome.slots):
            self._want(slot)
        self._fill()
        while self._events:
            self._step()

    def churn(self, seconds: float) -> None:
        """Replace each slot after its life, until so much time has passed."""
        end, self._churns = self.now + seconds, True
        for slot in self._where:
            self._live(slot)
        while self._events and self._events[0][0] <= end:
            self._step()
        self._churns = False
        self._events = [event for event in self._events if event[1]]
        heapq.heapify(self._events)
        while self._events:
            self._step()

    def shrink(self, size: int) -> None:
        """Give slots back: those of the emptiest nodes, or the newest."""
        order = list(self._where)
        if self.policy.emptiest_first:
            # A node that gives back its first slot gives back all, since it is the emptiest from then on.
            order.sort(key=lambda slot: (self._ledger.fullness(self._where[slot]), self._where[slot]))
        else:
            order.reverse()
        for slot in order[: len(order) - size]:
            self._ledger.drop(f"slot-{slot}")
            del self._where[slot]

    def _note(self, part: str) -> None:
        self.outcome.nodes[part] = len(set(self._where.values()))
        self.outcome.bounds[part] = bound([self._needs[slot] for slot in self._where])

    def _want(self, slot: int) -> None:
        self._waiting.setdefault(self._needs[slot], deque()).append((slot, self.now))

    def _fill(self) -> None:
        """Start what waits and may start, the shapes in turn, as the planner's pools are."""
        waiting = dict(self._waiting)
        while waiting:
            needs = min(waiting, key=lambda kind: waiting[kind][0])
            self.outcome.choices += 1
            node = self._ledger.choose(needs, cap=self.policy.limit)
            if not isinstance(node, str):
                del waiting[needs]
                continue
            self._start(*waiting[needs].popleft(), node=node)
            if not waiting[needs]:
                del waiting[needs], self._waiting[needs]

    def _start(self, slot: int, wanted: float, *, node: str) -> None:
        done = max(self.now + START_SECONDS, self._completes.get(node, 0.0) + 1 / STARTS_PER_SECOND)
        self._completes[node] = done
        self._starting[node] += 1
        self.outcome.most_starting = max(self.outcome.most_starting, self._starting[node])
        self.outcome.waits.append(done - wanted)
        self._where[slot] = node
        self._lives[slot] += 1
        self._ledger.put(f"slot-{slot}", self._needs[slot], node=node, starting=True)
        heapq.heappush(self._events, (done, True, slot, self._lives[slot]))

    def _live(self, slot: int) -> None:
        end = self.now + self._random.expovariate(1 / LIFE)
        heapq.heappush(self._events, (end, False, slot, self._lives[slot]))

    def _step(self) -> None:
        self.now, is_started, slot, life = heapq.heappop(self._events)
        if life != self._lives[slot]:
            return
        node = self._where[slot]
        if is_started:
            self._starting[node] -= 1
            self._ledger.put(f"slot-{slot}", self._needs[slot], node=node, starting=False)
            if self._churns:
                self._live(slot)
        else:
            self._ledger.drop(f"slot-{slot}")
            del self._where[slot]
            self._want(slot)
        self._fill()


def table(outcomes: dict[Policy, Outcome]) -> Table:
    """Return the comparison for the terminal."""
    made = Table(box=box.SIMPLE_HEAD)
    columns = (
        "",
        "nodes: burst",
        "churn",
        "half the slots",
        "start p50",
        "p99",
        "last",
        "starts at once",
        "took",
    )
    for name in columns:
        made.add_column(name, justify="left" if not name else "right")
    for policy, outcome in outcomes.items():
        burst = sorted(outcome.waits[: outcome.slots])
        made.add_row(
            policy.name,
            *(f"{outcome.nodes[part]} ({1 / outcome.packing(part):.2f} ×)" for part in outcome.nodes),
            *(f"{percentile(burst, share):.1f} s" for share in (0.5, 0.99)),
            f"{burst[-1]:.1f} s",
            str(outcome.most_starting),
            f"{outcome.seconds:.0f} s",
        )
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--slots", type=int, default=100_000)
    arguments = parser.parse_args()
    console = Console(width=160)
    outcomes = {
        policy: Simulation(policy, nodes=arguments.nodes, slots=arguments.slots).run() for policy in POLICIES
    }
    console.print(table(outcomes))
    for warm, title in ((True, "after a warm-up"), (False, "from nodes without images")):
        console.print(f"Sandboxes of {image_simulation.IMAGES:,} images, {title}:")
        images = image_simulation.compare(
            nodes=arguments.nodes, slots_per_node=arguments.slots // arguments.nodes, warm=warm
        )
        console.print(image_simulation.table(images))


if __name__ == "__main__":
    main()
