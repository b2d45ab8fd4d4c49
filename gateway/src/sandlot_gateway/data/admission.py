"""Decides, without I/O, who may run now, who waits in line and who is turned away, per lane and in total."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Full:
    """Turned away, with what a caller may be told."""

    scope: Literal["sandbox", "gateway"]
    running: int  # in the lane, or in the whole gateway, by scope
    queued: int
    limit: int  # the bound that was met

    def document(self) -> dict[str, Any]:
        return {"scope": self.scope, "running": self.running, "queued": self.queued, "limit": self.limit}


class _Lane:
    __slots__ = ("running", "tenant", "waiting")

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.running = 0
        self.waiting: dict[Hashable, None] | None = None  # in order of arrival


class Admission:
    """Lanes (one per sandbox) that exist only while somebody is in them.

    Every ticket that `enter` takes in is later given back once: with `leave` when it ran, with `cancel` when it
    stopped waiting. At all times running ≤ max_running in each lane and waiting ≤ max_waiting in each lane. The sum of
    all is ≤ max_total, but for a tenth of it that each tenant has for sure when others have filled it.
    """

    def __init__(self, *, max_running: int, max_waiting: int, max_total: int) -> None:
        if max_running < 1 or max_waiting < 0 or max_total < 1:
            raise ValueError("max_running and max_total must be at least 1, max_waiting at least 0")
        self.max_running = max_running
        self.max_waiting = max_waiting
        self.max_total = max_total
        self.running = 0
        self.waiting = 0
        self._sure_of_tenant = max(1, max_total // 10)
        self._of_tenant: Counter[str] = Counter()
        self._lanes: dict[str, _Lane] = {}

    def enter(self, lane_name: str, ticket: Hashable | None, *, tenant: str = "") -> Full | bool:
        """True: run. False: `ticket` waits. Full: turned away. `tenant`: whose the lane is.

        Without a ticket waiting is not an option: the answer False then changed nothing, and the caller comes again
        with one.
        """
        is_full = self.running + self.waiting >= self.max_total
        if is_full and self._of_tenant[tenant] >= self._sure_of_tenant:
            return Full("gateway", self.running, self.waiting, self.max_total)
        lane = self._lanes.get(lane_name)
        if lane is None:
            lane = self._lanes[lane_name] = _Lane(tenant)
        if lane.running < self.max_running:
            lane.running += 1
            self.running += 1
            self._of_tenant[lane.tenant] += 1
            return True
        queued = len(lane.waiting) if lane.waiting else 0
        if queued >= self.max_waiting:
            return Full("sandbox", lane.running, queued, self.max_waiting)
        if ticket is None:
            return False
        if lane.waiting is None:
            lane.waiting = {}
        lane.waiting[ticket] = None
        self.waiting += 1
        self._of_tenant[lane.tenant] += 1
        return False

    def leave(self, lane_name: str) -> Hashable | None:
        """One that ran is done; the ticket that runs now in its place, if somebody waited."""
        lane = self._lanes[lane_name]
        self._one_less(lane.tenant)
        if lane.waiting:
            ticket = next(iter(lane.waiting))
            del lane.waiting[ticket]
            self.waiting -= 1
            return ticket
        lane.running -= 1
        self.running -= 1
        if lane.running == 0:
            del self._lanes[lane_name]
        return None

    def cancel(self, lane_name: str, ticket: Hashable) -> bool:
        """A waiting ticket gives up. False: it is not waiting (any more), so it runs and must `leave`."""
        lane = self._lanes.get(lane_name)
        if lane is None or not lane.waiting or ticket not in lane.waiting:
            return False
        del lane.waiting[ticket]
        self.waiting -= 1
        self._one_less(lane.tenant)
        return True

    def position(self, lane_name: str) -> tuple[int, int]:
        """(running, waiting) of a lane."""
        lane = self._lanes.get(lane_name)
        return (0, 0) if lane is None else (lane.running, len(lane.waiting or ()))

    def _one_less(self, tenant: str) -> None:
        self._of_tenant[tenant] -= 1
        if not self._of_tenant[tenant]:
            del self._of_tenant[tenant]

    @property
    def lanes(self) -> int:
        return len(self._lanes)
