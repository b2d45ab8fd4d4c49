"""What the nodes have of images: as their agents say, and as preparations that ended since; and who can take more."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass

from ..plan.warmups import Copy, WarmNode
from .node_agents import AgentError, NodeAgents

_FULL = 300.0  # seconds that a node whose disk was full gets no new image
_FULLS = 3  # times in a row, before it gets none any more


@dataclass(slots=True)
class _Node:
    address: str
    platform: str
    budget: int
    present: dict[str, int]
    busy: tuple[tuple[frozenset[str], int], ...]
    preparing: frozenset[str]
    full_until: float = 0.0
    fulls: int = 0


class WarmNodes:
    """The nodes whose agents answer. `present`: bytes of each copy; `images`: on how many nodes each is.

    `ready` are the present copies but those that `ask_again` has named, until their agents have been asked.
    """

    def __init__(self, *, now: Callable[[], float]) -> None:
        """`now`: a monotonic clock."""
        self.present: dict[Copy, int] = {}
        self.ready: dict[Copy, int] = {}
        self._images: dict[str, int] = {}
        self._to_ask: set[str] = set()  # images
        self._asked: set[Copy] = set()  # of these
        self._ready_images: set[str] = set()
        self._now = now
        self._nodes: dict[str, _Node] = {}
        self._prepared: dict[Copy, int] = {}  # for the warm-ups of now
        self._unable: dict[str, str] = {}  # node → why it prepares nothing
        self._barred: dict[str, dict[str, str]] = {}  # image → platform → why
        self._known: set[str] = set()  # nodes that looks have found
        self.joined = False  # the last look has found a node for the first time

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, node: object) -> bool:
        return node in self._nodes

    @property
    def somewhere(self) -> Set[str]:
        """Return the images that a node has."""
        return self._images.keys()

    @property
    def ready_somewhere(self) -> Set[str]:
        """Return the images of which a copy is ready."""
        return self._ready_images

    def ask_again(self, images: Collection[str]) -> None:
        """Let copies of these images be ready only once their agents have been asked for them from now on.

        A tag may mean another image by now, and the tenant that wants it may not have it.
        """
        self._to_ask.update(images)
        self._asked = {copy for copy in self._asked if copy.image not in images}
        self._count()

    def ask_only(self, images: Collection[str]) -> None:
        """Let the copies of all other images be ready where they are present."""
        self._to_ask.intersection_update(images)
        self._asked = {copy for copy in self._asked if copy.image in self._to_ask}
        self._count()

    @property
    def trouble(self) -> str | None:
        """Return why one of the nodes prepares no image at all."""
        return next((why for node, why in self._unable.items() if node in self._nodes), None)

    def preparing(self) -> set[Copy]:
        """Return the copies that the agents were preparing at the last look, and that their nodes lack."""
        return {
            copy
            for name, node in self._nodes.items()
            for image in node.preparing
            if (copy := Copy(image, name)) not in self.present
        }

    def address(self, node: str) -> str:
        return self._nodes[node].address

    async def look(self, agents: NodeAgents, addresses: Mapping[str, str]) -> tuple[list[Copy], str | None]:
        """Ask the agents; return the copies that nodes have dropped, and what is in the way, if anything is."""
        before = list(self._prepared)
        found = await asyncio.gather(
            *(agents.images(address) for address in addresses.values()), return_exceptions=True
        )
        nodes: dict[str, _Node] = {}
        silent: str | None = None
        for (name, address), images in zip(addresses.items(), found, strict=True):
            if isinstance(images, AgentError):
                silent = str(images)
            elif isinstance(images, BaseException):
                raise images
            else:
                node = nodes[name] = _Node(
                    address,
                    images.platform,
                    images.room,
                    dict(images.present),
                    images.busy,
                    images.preparing,
                )
                if (known := self._nodes.get(name)) is not None:
                    node.full_until, node.fulls = known.full_until, known.fulls
        dropped = [
            copy for copy in before if copy.node in nodes and copy.image not in nodes[copy.node].present
        ]
        for copy in dropped:
            del self._prepared[copy]
        self._leave(self._known - addresses.keys())
        self.joined = not nodes.keys() <= self._known
        self._known |= nodes.keys()
        self._nodes = nodes
        for copy, size in self._prepared.items():
            if copy.node in nodes:
                nodes[copy.node].present.setdefault(copy.image, size)
        self._count()
        return dropped, silent

    def _leave(self, names: Collection[str]) -> None:
        """Forget nodes that left: one of the same name that joins is another one."""
        self._known.difference_update(names)
        for name in names:
            self._unable.pop(name, None)
        for copy in [copy for copy in self._prepared if copy.node in names]:
            del self._prepared[copy]

    def _count(self) -> None:
        for known in (self.present, self.ready, self._images, self._ready_images):
            known.clear()
        for name, node in self._nodes.items():
            for image, size in node.present.items():
                self._add(Copy(image, name), size)

    def _add(self, copy: Copy, size: int) -> None:
        if copy not in self.present:
            self._images[copy.image] = self._images.get(copy.image, 0) + 1
        self.present[copy] = size
        if copy.image not in self._to_ask or copy in self._asked:
            self.ready[copy] = size
            self._ready_images.add(copy.image)

    def for_plan(self, wanted: Collection[str], *, stopped: Collection[str]) -> list[WarmNode]:
        """Return the nodes with the room that they have for these images; `stopped` ones go to no other node."""
        now = self._now()
        barred: dict[str, frozenset[str]] = {}
        for platform in {node.platform for node in self._nodes.values()}:
            barred[platform] = frozenset(
                (*stopped, *(image for image, why in self._barred.items() if platform in why))
            )
        names = frozenset(wanted)
        nodes: list[WarmNode] = []
        for name, node in self._nodes.items():
            taken = sum(size for images, size in node.busy if names.isdisjoint(images))
            closed = node.full_until > now or name in self._unable
            room = 0 if closed else max(0, node.budget - taken)
            nodes.append(WarmNode(name, room, dict(node.present), barred[node.platform]))
        return nodes

    def reopen(self) -> bool:
        """Let nodes whose disk was full try again after a while; return whether there are any."""
        found = [node for node in self._nodes.values() if 0.0 < node.full_until <= self._now()]
        for node in found:
            node.full_until = 0.0
        return bool(found)

    def reopens_at(self) -> float | None:
        """Return when a node whose disk was full tries again; None: none does."""
        times = [node.full_until for node in self._nodes.values() if 0.0 < node.full_until < math.inf]
        return min(times, default=None)

    def nowhere(self, image: str) -> str | None:
        """Return why no node of now can have the image; None: one may."""
        barred = self._barred.get(image, {})
        able = {node.platform for name, node in self._nodes.items() if name not in self._unable}
        if not self._nodes or not able <= barred.keys():
            return None
        return next(iter(barred.values()), None) or self.trouble

    # What preparations have come to.

    def prepared(self, copy: Copy, size: int) -> None:
        self._prepared[copy] = size
        if (node := self._nodes.get(copy.node)) is not None:
            node.fulls = 0
            node.present[copy.image] = size
            self._asked.add(copy)
            self._add(copy, size)

    def full(self, name: str) -> None:
        """Note that a node has no space; concurrent failures count once."""
        node = self._nodes.get(name)
        if node is None or node.full_until > self._now():
            return
        node.fulls += 1
        node.full_until = self._now() + _FULL if node.fulls < _FULLS else math.inf

    def unable(self, name: str, why: str) -> None:
        """Note that a node prepares no image at all."""
        self._unable[name] = f"{name}: {why}"

    def bar(self, copy: Copy, why: str) -> None:
        """Note that no node of this node's platform can have the image."""
        if (node := self._nodes.get(copy.node)) is not None:
            self._barred.setdefault(copy.image, {})[node.platform] = why

    def try_again(self, images: Collection[str]) -> None:
        """Forget what was in the way of these images."""
        self._unable.clear()
        for image in images:
            self._barred.pop(image, None)
        for node in self._nodes.values():
            node.full_until, node.fulls = 0.0, 0

    def keep_only(self, images: Collection[str]) -> None:
        """Forget what preparations of other images have come to."""
        for copy in [copy for copy in self._prepared if copy.image not in images]:
            del self._prepared[copy]
        for image in self._barred.keys() - images:
            del self._barred[image]

    def forget(self) -> None:
        """Forget everything."""
        for known in (self._nodes, self._prepared, self._unable, self._barred, self._known, self._to_ask):
            known.clear()
        self._asked.clear()
        self._count()
