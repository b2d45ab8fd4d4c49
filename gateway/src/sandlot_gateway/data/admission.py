"""Decides, without I/O, which requests run, queue or are rejected, per lane and in total."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Full:
    """A rejection: which limit was reached, in the form that the caller may see."""

    scope: Literal["sandbox", "gateway"]
    running: int  # in the lane, or in the whole gateway, by scope
    queued: int
    limit: int  # the limit that was reached

    def document(self) -> dict[str, Any]:
        return {"scope": self.scope, "running": self.running, "queued": self.queued, "limit": self.limit}


class _Lane:
    __slots__ = ("running", "tenant", "waiting")

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.running = 0
        self.waiting: dict[Hashable, None] | None = None  # in order of arrival


class Admission:
    """Admits requests by lane (one per sandbox); a lane exists only while it has requests.

    Every ticket that `enter` accepts is released exactly once: with `leave` if it ran, with `cancel` if it stopped
    waiting. In each lane running ≤ max_running and waiting ≤ max_waiting. The sum over all lanes is ≤ max_total, except
    for the tenth of it that is reserved for each tenant when others have filled the rest.
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
        """Return True to run now, False if `ticket` was queued, Full if rejected; `tenant` owns the lane.

        A request without a ticket cannot queue: False then means that nothing changed, and that the caller calls again
        with a ticket.
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
        """Release a running request; return the waiting ticket that now runs in its place, if any."""
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
        """Remove a waiting ticket; return False if it no longer waits: it then runs and must `leave`."""
        lane = self._lanes.get(lane_name)
        if lane is None or not lane.waiting or ticket not in lane.waiting:
            return False
        del lane.waiting[ticket]
        self.waiting -= 1
        self._one_less(lane.tenant)
        return True

    def position(self, lane_name: str) -> tuple[int, int]:
        """Return (running, waiting) of a lane."""
        lane = self._lanes.get(lane_name)
        return (0, 0) if lane is None else (lane.running, len(lane.waiting or ()))

    def _one_less(self, tenant: str) -> None:
        self._of_tenant[tenant] -= 1
        if not self._of_tenant[tenant]:
            del self._of_tenant[tenant]

    @property
    def lanes(self) -> int:
        return len(self._lanes)
