"""Control groups whose runner has ended: removed as soon as what ops left behind there is gone."""

from __future__ import annotations

import time

from .group import remove_group
from .group_kill import kill_members

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .group import Group
    from .limits import Limits

CHARGED = 64 << 10  # bytes of a group without processes that count
WATCH_EVERY = 0.2
WATCH_SECONDS = 5.0  # after an op left processes behind; later ones are met when the next runner is made
# For the groups of what a reset has killed; what has a member then is told as a difference.
EMPTY_SECONDS = 5.0


class RetiredGroups:
    """Those of one sandbox; there are none where it has no control group."""

    def __init__(
        self, limits: Limits, *, end_init: Callable[[], None], reap_orphans: Callable[[], None]
    ) -> None:
        """`end_init`: ends all in the sandbox, where a fork bomb cannot be killed otherwise."""
        self._limits = limits
        self._end_init = end_init
        self._reap_orphans = reap_orphans
        self._groups: list[Group] = []
        self._charged: list[str] = []  # groups without processes, but with memory: of shared memory
        self._watch_until = self._look_at = self._sweep_at = 0.0

    @property
    def _parent(self) -> Group:
        assert self._limits.cgroup is not None
        return self._limits.cgroup.group

    def add(self, group: Group) -> None:
        """Remove a group, now if it is empty."""
        if self._removed(group):
            return
        self._groups.append(group)
        now = time.monotonic()
        self._watch_until, self._sweep_at = now + WATCH_SECONDS, now + WATCH_EVERY

    def names(self) -> list[str]:
        """Of the groups that something has been left in."""
        return [group.name for group in self._groups]

    def kill(self, name: str) -> int:
        """Kill all that is left in one of them; how many died."""
        if name not in self.names():
            return 0
        left = self._parent.child(name)
        try:
            return kill_members(left, spare=0, lost=self._end_init)
        finally:
            left.close()

    def patience(self) -> int | None:
        """Milliseconds until `look` has something to do; None: nothing."""
        if not self._groups:
            return None
        now = time.monotonic()
        if self._limits.watch is not None:
            return max(0, int((min(self._look_at, self._sweep_at) - now) * 1000) + 1)
        return int(WATCH_EVERY * 1000) if now < self._watch_until else None

    def look(self) -> None:
        """At what ops have left behind: remove the groups that are empty by now, and end what takes too much."""
        now = time.monotonic()
        if self._groups and now >= self._sweep_at:
            self._sweep_at = now + WATCH_EVERY
            self.remove_empty()
        if self._groups and self._limits.watch is not None and now >= self._look_at:
            self._look_at, _ = self._limits.watch.look(None)

    def remove_empty(self) -> None:
        """Remove the groups that are empty by now, and end the bombs among them: one grows before it can be told."""
        if self._charged:
            self._forget_charged()
        if not self._groups:
            return
        self._reap_orphans()
        self._groups = [group for group in self._groups if not self._removed(group)]

    def await_empty(self) -> None:
        """Remove the groups of all that was killed: under gVisor a process leaves its own some time after its end."""
        deadline, pause = time.monotonic() + EMPTY_SECONDS, 0.001
        while True:
            self.remove_empty()
            if self._charged:
                self._forget_charged(all_of_it=True)  # what was shared ends with the sandbox's namespaces
            if not (self._groups or self._charged) or time.monotonic() > deadline:
                return
            time.sleep(pause)
            pause = min(pause * 2, 0.05)

    def _removed(self, group: Group) -> bool:
        parent = self._parent
        if self._limits.watch is not None and self._is_charged(group.name):
            group.close()
            self._charged.append(group.name)
            return True
        if group.remove(parent):
            return True
        # A bomb whose first process ended before the limit was reached would burn the sandbox's cpu for ever.
        left = parent.child(group.name)
        try:
            if left.overrun():
                kill_members(left, spare=0, lost=self._end_init)
        finally:
            left.close()
        return group.remove(parent)

    def _is_charged(self, name: str) -> bool:
        """Whether memory of a group without processes is held all the same, which would be forgotten with the group."""
        group = self._parent.child(name)
        try:
            return (group.number("memory") or 0) > CHARGED and not group.members()
        finally:
            group.close()

    def _forget_charged(self, *, all_of_it: bool = False) -> None:
        group = self._parent
        self._charged = [
            name
            for name in self._charged
            if (not all_of_it and self._is_charged(name))
            or not all(remove_group(each, name) for each in set(group.directories.values()))
        ]
