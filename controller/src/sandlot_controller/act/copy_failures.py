"""Which copies of images could not be made, why, and when they are tried again."""

from __future__ import annotations

import logging
from collections import ChainMap, Counter
from collections.abc import Collection, Iterable, Mapping
from enum import Enum, auto

from ..plan.warmup_progress import Failure
from ..plan.warmups import Copy
from .node_agents import NO_SPACE, UNAUTHORIZED, UNSUPPORTED, WRONG_PLATFORM, AgentError
from .warm_nodes import WarmNodes

_log = logging.getLogger(__name__)

_TRIES = 5  # of one copy
_MESSAGE = 1000  # characters
_DROPPED = (
    "the node has released it again for other images; raise nodeAgent.config.budget, or warm fewer images"
)


class Then(Enum):
    """What follows the failure of a copy."""

    LATER = auto()  # it is tried again
    ELSEWHERE = auto()  # another plan finds another node
    REFUSED = auto()  # no node can have the image, or this tenant has no right to it
    NEVER = auto()  # this node does not get it


class CopyFailures:
    """`failed`: why copies are not tried again. Of each tenant: why no node can have an image for it."""

    def __init__(self, nodes: WarmNodes, *, backoff: float) -> None:
        self.failed: dict[Copy, str] = {}
        self._refused: dict[str, Failure] = {}  # for all tenants
        self._denied: dict[str, dict[str, Failure]] = {}  # tenant -> image -> why
        self._nodes = nodes
        self._backoff = backoff
        self._tries: Counter[Copy] = Counter()
        self._retry_at: dict[Copy, float] = {}

    def waiting(self, *, now: float) -> dict[Copy, float]:
        """Return the copies that are not to be tried yet, with the times of their next tries."""
        return {copy: at for copy, at in self._retry_at.items() if at > now}

    def may_try(self, copies: Iterable[Copy], *, now: float) -> list[Copy]:
        """Return those of the copies that have not failed, or may be tried again by now."""
        return [copy for copy in copies if copy not in self.failed and self._retry_at.get(copy, now) <= now]

    def made(self, copy: Copy) -> None:
        self._tries.pop(copy, None)
        self._retry_at.pop(copy, None)

    def refused(self, tenant: str) -> Mapping[str, Failure]:
        """Return the images that no other node can have for this tenant."""
        return ChainMap(self._refused, self._denied.get(tenant, {}))

    def note(self, copy: Copy, error: AgentError, *, tenant: str, now: float) -> Then:
        """Record a failure and return what follows."""
        message = str(error)[:_MESSAGE]
        self._tries[copy] += 1
        refusal = Failure(copy.image, message, copy.node, kept=copy.image in self._nodes.somewhere)
        if error.final:
            self._refused[copy.image] = refusal
            then = Then.REFUSED
        elif error.code == UNAUTHORIZED:
            self._denied.setdefault(tenant, {})[copy.image] = refusal
            then = Then.REFUSED
        elif error.code in (NO_SPACE, UNSUPPORTED, WRONG_PLATFORM):
            self.made(copy)
            if error.code == NO_SPACE:
                self._nodes.full(copy.node)
            elif error.code == UNSUPPORTED:
                self._nodes.unable(copy.node, message)
            else:
                self._nodes.bar(copy, message)
            _log.info("%s goes to another node than %s: %s", copy.image, copy.node, message)
            return Then.ELSEWHERE
        elif self._tries[copy] < _TRIES:
            self._retry_at[copy] = now + self._backoff * 2 ** (self._tries[copy] - 1)
            return Then.LATER
        else:
            self._retry_at.pop(copy, None)
            self.failed[copy] = message
            then = Then.NEVER
        _log.warning("cannot prepare %s on %s: %s", copy.image, copy.node, message)
        return then

    def dropped(self, copies: Collection[Copy]) -> None:
        """Record copies that nodes have released; they are not made again, since they would be released again."""
        self.failed |= dict.fromkeys(copies, _DROPPED)

    def nowhere(self, images: Collection[str]) -> None:
        """Record which of the images that fit on no node can be on none."""
        for image in images:
            if (why := self._nodes.nowhere(image)) is not None:
                self._refused[image] = Failure(image, why)

    def try_again(self, images: Collection[str], *, tenant: str) -> None:
        """Forget what an earlier warm-up could not have of these images."""
        for image in images:
            for refused in (self._refused, self._denied.get(tenant, {})):
                refused.pop(image, None)
        for failures in (self.failed, self._tries):
            for copy in [copy for copy in failures if copy.image in images]:
                del failures[copy]
        self._nodes.try_again(images)

    def keep_only(self, images: Collection[str]) -> None:
        """Forget everything about other images."""
        for failures in (self.failed, self._tries, self._retry_at):
            for copy in [copy for copy in failures if copy.image not in images]:
                del failures[copy]
        for refused in (self._refused, *self._denied.values()):
            for image in refused.keys() - images:
                del refused[image]

    def forget(self) -> None:
        """Forget everything."""
        for failures in (self._tries, self._retry_at, self.failed, self._refused, self._denied):
            failures.clear()
