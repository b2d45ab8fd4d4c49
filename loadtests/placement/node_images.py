"""The images of simulated nodes: each node keeps a number of them, and drops the one unused for the longest time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

IMAGE_BYTES = 1 << 30  # of each image; node agents and kubelets report it


@dataclass(slots=True)
class _Held:
    users: set[str] = field(default_factory=set)
    ready_at: float = 0.0


class Nodes:
    """`budget`: images on a node. Images in use never go, so a node with more of those than its budget exceeds it."""

    def __init__(self, names: Iterable[str], *, budget: int) -> None:
        self._budget = budget
        # Node -> its images, the one that was used last at the end.
        self.images: dict[str, OrderedDict[str, _Held]] = {name: OrderedDict() for name in names}
        # Image -> its nodes, in an order that is the same in each run.
        self.holders: dict[str, dict[str, None]] = {}
        self.pulls = 0

    def place(self, node: str, image: str) -> None:
        """Put an image on a node before the simulation begins."""
        self.images[node][image] = _Held()
        self.holders.setdefault(image, {})[node] = None

    def prepare(self, node: str, image: str, *, now: float, pull: float) -> float:
        """Pull an image if the node lacks it; return in how many seconds it is there."""
        held = self.images[node].get(image)
        if held is None:
            self.pulls += 1
            held = self.images[node][image] = _Held(ready_at=now + pull)
            self.holders.setdefault(image, {})[node] = None
        self.images[node].move_to_end(image)
        self._keep_budget(node, image)
        return max(0.0, held.ready_at - now)

    def use(self, node: str, image: str, user: str) -> None:
        """Keep an image that the node has until `unuse`."""
        self.images[node][image].users.add(user)
        self.images[node].move_to_end(image)

    def unuse(self, node: str, image: str, user: str) -> None:
        self.images[node][image].users.discard(user)
        self.images[node].move_to_end(image)

    def _keep_budget(self, node: str, asked: str) -> None:
        images: Mapping[str, _Held] = self.images[node]
        over = len(images) - self._budget
        if over <= 0:
            return
        for image in [name for name, held in images.items() if not held.users and name != asked][:over]:
            del self.images[node][image]
            del self.holders[image][node]
