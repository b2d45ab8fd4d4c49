"""Decides which nodes prepare which images of a warm-up, and which of them next."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

SPARE = 4.0  # nodes with an image, per node that its share of the sandboxes would fill
LEAST = 2  # nodes with an image, so that one may be lost, full or drained
ASSUMED_BYTES = 1 << 30  # of an image whose size no node has reported, while none is known


@dataclass(frozen=True, slots=True)
class WantedImage:
    """An image of warm-ups. `weight`: its part of all sandboxes, in any unit; `turn`: those of a lower one go first."""

    name: str
    weight: float
    turn: int = 0


@dataclass(frozen=True, slots=True)
class WarmNode:
    """A node whose agent answers. `room`: bytes that prepared images may have; `present`: their sizes by name.

    `barred`: images that it cannot have.
    """

    name: str
    room: int
    present: Mapping[str, int]
    barred: Collection[str] = ()


class Copy(NamedTuple):
    """One image on one node."""

    image: str
    node: str


@dataclass(frozen=True, slots=True)
class WarmPlan:
    """All copies, in the order in which they are prepared; `left_out`: images that fit on no node."""

    copies: tuple[Copy, ...]
    left_out: tuple[str, ...]

    def by_image(self) -> dict[str, list[Copy]]:
        found: dict[str, list[Copy]] = {}
        for copy in self.copies:
            found.setdefault(copy.image, []).append(copy)
        return found


def wanted_images(warmups: Iterable[tuple[str, Mapping[str, int]]]) -> list[WantedImage]:
    """Return the images of warm-ups, each a tenant with its weights; neither weights nor numbers give one precedence.

    A warm-up's weights count by their share of their sum. The tenants take turns, each with its most frequent first.
    """
    shares: dict[str, dict[str, float]] = {}
    for tenant, weights in warmups:
        of_tenant = shares.setdefault(tenant, {})
        total = sum(weights.values())
        for name, weight in weights.items():
            of_tenant[name] = of_tenant.get(name, 0.0) + weight / total
    weights_of: dict[str, float] = {}
    turns: dict[str, int] = {}
    for of_tenant in shares.values():
        ranked = sorted(of_tenant, key=lambda name: (-of_tenant[name], name))
        for turn, name in enumerate(ranked):
            weights_of[name] = weights_of.get(name, 0.0) + of_tenant[name]
            turns[name] = min(turn, turns.get(name, turn))
    return [WantedImage(name, weight, turns[name]) for name, weight in weights_of.items()]


def nodes_for(weight: float, *, total: float, nodes: int) -> int:
    """Return how many nodes should have an image: SPARE times those that its share of the sandboxes fills."""
    share = weight / total if total else 0.0
    return min(nodes, max(LEAST, math.ceil(SPARE * share * nodes)))


def place(
    wanted: Sequence[WantedImage],
    nodes: Sequence[WarmNode],
    *,
    pulling: Collection[Copy] = (),
    failed: Collection[Copy] = (),
) -> WarmPlan:
    """Choose the nodes of each image, the emptiest ones first; copies that exist, are being made or failed stay.

    Every image gets a first node before any gets a second one, the most frequent of each turn first.
    """
    ranked = sorted(wanted, key=lambda image: (image.turn, -image.weight, image.name))
    sizes = _sizes(ranked, nodes)
    total = sum(image.weight for image in ranked)
    goals = {image.name: nodes_for(image.weight, total=total, nodes=len(nodes)) for image in ranked}
    room = {node.name: node.room for node in nodes}
    chosen: dict[str, list[str]] = {image.name: [] for image in ranked}
    begun: dict[str, set[str]] = {}
    for copy in pulling:
        begun.setdefault(copy.node, set()).add(copy.image)
    for node in sorted(nodes, key=lambda node: node.name):
        for name in sorted((node.present.keys() | begun.get(node.name, set())) & chosen.keys()):
            chosen[name].append(node.name)
            room[node.name] -= sizes[name]
    for copy in sorted(failed):
        if copy.node in room and copy.node not in chosen.get(copy.image, [copy.node]):
            chosen[copy.image].append(copy.node)
    barred: dict[str, list[str]] = {}
    for node in nodes:
        for name in node.barred:
            barred.setdefault(name, []).append(node.name)
    free = [(-left, name) for name, left in room.items()]
    heapq.heapify(free)
    lacking = ranked
    for number in range(max(goals.values(), default=0)):
        lacking = [image for image in lacking if goals[image.name] > number]
        for image in lacking:
            if len(chosen[image.name]) == number:
                node = _take(free, sizes[image.name], but={*chosen[image.name], *barred.get(image.name, ())})
                if node is not None:
                    chosen[image.name].append(node)
    copies = [
        (number, rank, Copy(image.name, node))
        for rank, image in enumerate(ranked)
        for number, node in enumerate(chosen[image.name][: max(goals[image.name], 1)])
    ]
    copies.sort(key=lambda one: one[:2])
    return WarmPlan(
        tuple(copy for _, _, copy in copies),
        tuple(image.name for image in ranked if not chosen[image.name]),
    )


def place_all(
    wanted: Sequence[WantedImage],
    standing: Sequence[WantedImage],
    nodes: Sequence[WarmNode],
    *,
    pulling: Collection[Copy] = (),
    failed: Collection[Copy] = (),
) -> WarmPlan:
    """Choose nodes as `place`, then, in the room that is left, those of images of warm-ups that were done before."""
    plan = place(wanted, nodes, pulling=pulling, failed=failed)
    if not standing:
        return plan
    first = set(plan.copies)
    sizes = _sizes([*wanted, *standing], nodes)
    names = {image.name for image in standing}
    taken: Counter[str] = Counter()
    for copy in plan.copies:
        if copy.image not in names:
            taken[copy.node] += sizes[copy.image]
    rest = [replace(node, room=node.room - taken[node.name]) for node in nodes]
    later = place(standing, rest, pulling={*pulling, *first}, failed=failed)
    return WarmPlan(
        (*plan.copies, *(copy for copy in later.copies if copy not in first)),
        (*plan.left_out, *(image for image in later.left_out if image not in plan.left_out)),
    )


def next_pulls(
    wanted: Iterable[Copy],
    *,
    somewhere: Container[str],
    pulling: Collection[Copy],
    waiting: Container[Copy],
    per_node: int,
) -> list[Copy]:
    """Return which of these copies to begin now, the first ones first, at most `per_node` on a node at once.

    `somewhere`: images that a node has. `waiting`: copies not to be tried yet. An image goes to its first node alone, so that
    the others find it at a neighbour and not only in the registry.
    """
    busy = Counter(copy.node for copy in pulling)
    begun = {copy.image for copy in pulling if copy.image not in somewhere}
    found: list[Copy] = []
    for copy in wanted:
        if busy[copy.node] >= per_node or copy in pulling or copy in waiting:
            continue
        if copy.image not in somewhere:
            if copy.image in begun:
                continue
            begun.add(copy.image)
        busy[copy.node] += 1
        found.append(copy)
    return found


def _sizes(wanted: Sequence[WantedImage], nodes: Sequence[WarmNode]) -> dict[str, int]:
    """Return each image's bytes: as a node says, else the mean of those that are known."""
    names = {image.name for image in wanted}
    known: dict[str, int] = {}
    for node in nodes:
        for name in node.present.keys() & names:
            known[name] = max(known.get(name, 0), node.present[name])
    mean = sum(known.values()) // len(known) if known else ASSUMED_BYTES
    return {image.name: known.get(image.name, mean) for image in wanted}


def _take(free: list[tuple[int, str]], size: int, *, but: Collection[str]) -> str | None:
    """Take room on the emptiest node but these; return its name, or None if there is none."""
    passed: list[tuple[int, str]] = []
    taken: str | None = None
    while free and -free[0][0] >= size:
        left, name = heapq.heappop(free)
        if name not in but:
            taken = name
            passed.append((left + size, name))
            break
        passed.append((left, name))
    for one in passed:
        heapq.heappush(free, one)
    return taken
