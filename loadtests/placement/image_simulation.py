"""Runs sandboxes of a data set's images on simulated nodes, and counts those whose node had the image already.

Images are drawn by a Zipf law. Before the first sandbox, nodes have what the controller's plan of a warm-up gives
them. Sandboxes run as long as they do in a training run; each end is followed by the next create. A node that lacks an
image pulls it, and the sandbox runs after that.
"""

from __future__ import annotations

import heapq
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

from rich import box
from rich.table import Table
from sandlot_controller.plan.warmups import WantedImage, WarmNode, place

from loadtests.placement.image_placers import PLACERS, Placer
from loadtests.placement.node_images import IMAGE_BYTES, Nodes

IMAGES, ZIPF, BUDGET = 2000, 1.1, 40  # BUDGET: images on a node
BUSY = 0.8  # of the slots, at any time
PULL = 20.0  # seconds
LIFE = 600.0  # mean seconds of a sandbox
LIVES = 2  # sandboxes that follow each one of the first


@dataclass(frozen=True, slots=True)
class Outcome:
    """`claims` and `local` leave out the first sandboxes, which fill the slots; `pulls` are of all."""

    claims: int
    local: int
    pulls: int
    nodes: int  # in use at the end
    choice: float  # CPU seconds that the choice for a sandbox took
    seconds: float

    @property
    def share(self) -> float:
        return self.local / self.claims


def simulate(name: str, *, nodes: int, slots_per_node: int = 10, warm: bool = True) -> Outcome:
    """Run one of PLACERS. `warm`: the nodes have images from the start."""
    begun = time.process_time()
    kept = Nodes((f"node-{number:05}" for number in range(nodes)), budget=BUDGET)
    if warm:
        warm_up(kept)
    placer: Placer = PLACERS[name](kept, slots_per_node=slots_per_node)
    return _run(placer, kept, busy=int(BUSY * nodes * slots_per_node), begun=begun)


def compare(*, nodes: int, slots_per_node: int = 10, warm: bool = True) -> dict[str, Outcome]:
    """Run all of PLACERS with the same sandboxes."""
    return {name: simulate(name, nodes=nodes, slots_per_node=slots_per_node, warm=warm) for name in PLACERS}


def weights() -> dict[str, float]:
    """Return each image's part of all sandboxes, in no unit."""
    return {f"image-{number:04}": 1 / (number + 1) ** ZIPF for number in range(IMAGES)}


def warm_up(nodes: Nodes) -> None:
    """Give each node what the controller's plan of a warm-up of all images gives it."""
    wanted = [WantedImage(name, weight) for name, weight in weights().items()]
    views = [WarmNode(name, BUDGET * IMAGE_BYTES, {}) for name in nodes.images]
    for copy in place(wanted, views).copies:
        nodes.place(copy.node, copy.image)


def _run(placer: Placer, nodes: Nodes, *, busy: int, begun: float) -> Outcome:
    chance = random.Random(1)
    names, cumulated = list(weights()), list(accumulate(weights().values()))
    local, choosing = 0, 0.0
    running: dict[str, str] = {}  # place -> node
    # When, whether an image is there by now, the place, node and image. The first sandboxes come one after the other.
    events: list[tuple[float, bool, str, str, str]] = [
        (LIFE * number / busy, False, "", "", "") for number in range(busy)
    ]
    for number in range(busy * (1 + LIVES)):
        while True:
            now, is_ready, place, node, image = heapq.heappop(events)
            if not is_ready:
                break
            placer.ready(place, node, image)
        if place:
            placer.end(place)
            del running[place]
        (image,) = chance.choices(names, cum_weights=cumulated)
        life = chance.expovariate(1 / LIFE)
        before = time.process_time()
        node, place = placer.begin(image, now=now)
        choosing += time.process_time() - before
        wait = nodes.prepare(node, image, now=now, pull=PULL)
        nodes.use(node, image, place)
        local += number >= busy and wait == 0
        running[place] = node
        heapq.heappush(events, (now + wait, True, place, node, image))
        heapq.heappush(events, (now + wait + life, False, place, node, image))
    claims = busy * LIVES
    return Outcome(
        claims=claims,
        local=local,
        pulls=nodes.pulls,
        nodes=len(set(running.values())),
        choice=choosing / (busy * (1 + LIVES)),
        seconds=time.process_time() - begun,
    )


def table(outcomes: Mapping[str, Outcome]) -> Table:
    """Return the comparison for the terminal."""
    made = Table(box=box.SIMPLE_HEAD)
    for column in ("", "image on the node", "pulls", "nodes in use", "CPU a choice", "took"):
        made.add_column(column, justify="left" if not column else "right")
    for name, outcome in outcomes.items():
        made.add_row(
            name,
            f"{outcome.share:.1%} of {outcome.claims:,}",
            f"{outcome.pulls:,}",
            f"{outcome.nodes:,}",
            f"{outcome.choice * 1e6:.0f} µs",
            f"{outcome.seconds:.0f} s",
        )
    return made
