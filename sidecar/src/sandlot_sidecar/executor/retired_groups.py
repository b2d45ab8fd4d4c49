"""Removes the control groups of ended runners once the processes that ops left there are gone."""

from __future__ import annotations

import time

from .crowded_bombs import CrowdedBombs
from .group_directories import remove_group
from .group_kill import kill_members, signal_members

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .group import Group
    from .limits import Limits

CHARGED = 64 << 10  # bytes above which a group without processes counts as charged
WATCH_EVERY = 0.2
WATCH_SECONDS = 5.0  # polling time after an op left processes; later the start of a runner checks again
# For the groups that a reset kills; the proof reports a group that still has a member as a difference.
EMPTY_SECONDS = 5.0
FREED_SECONDS = 5.0
FREED_SHARE = 16  # at most this part of the memory limit may still be taken


class RetiredGroups:
    """The retired groups of one sandbox; always empty if it has no control group."""

    def __init__(
        self, limits: Limits, *, end_init: Callable[[], None], reap_ended: Callable[[], None]
    ) -> None:
        """`end_init`: kills the whole sandbox where a fork bomb cannot be killed otherwise."""
        self._limits = limits
        self._end_init = end_init
        self._reap_ended = reap_ended
        self._groups: list[Group] = []
        self._bombs = CrowdedBombs()
        self._killed: set[str] = (
            set()
        )  # groups whose op was killed: under gVisor some processes escape the kill
        self._charged: list[str] = []  # groups without processes that are still charged for shared memory
        self._watch_until = self._memory_check_at = self._sweep_at = 0.0

    @property
    def _parent(self) -> Group:
        assert self._limits.cgroup is not None
        return self._limits.cgroup.group

    def add(self, group: Group, *, killed: bool = False) -> None:
        """Remove a group now if it is empty, else later. `killed`: kill what its op has left."""
        if killed:
            self._killed.add(group.name)
        if self._removed(group):
            self._killed.discard(group.name)
            return
        self._groups.append(group)
        now = time.monotonic()
        self._watch_until, self._sweep_at = now + WATCH_SECONDS, now + WATCH_EVERY

    def names(self) -> list[str]:
        """Return the names of the groups that still have members."""
        return [group.name for group in self._groups]

    def note_kill(self, name: str) -> None:
        """Note that what is left of a group has been killed, or is about to be: what escapes is killed, too."""
        if name in self.names():
            self._killed.add(name)

    def kill(self, name: str, *, end_init: Callable[[], None]) -> int:
        """Kill the remaining members of a group, if need be by `end_init`; return how many were killed."""
        if name not in self.names():
            return 0
        left = self._parent.child(name, make=False)
        try:
            return kill_members(left, exclude=0, on_timeout=end_init)
        finally:
            left.close()

    def poll_timeout_ms(self) -> int | None:
        """Return the milliseconds until `run_due_work` is due, or None."""
        if not self._groups:
            return None
        now = time.monotonic()
        if self._limits.watch is not None:
            return max(0, int((min(self._memory_check_at, self._sweep_at) - now) * 1000) + 1)
        return int(WATCH_EVERY * 1000) if self._killed or now < self._watch_until else None

    def run_due_work(self) -> None:
        """Remove empty groups and check the memory of the others, if either is due."""
        now = time.monotonic()
        if self._groups and now >= self._sweep_at:
            self._sweep_at = now + WATCH_EVERY
            self.remove_empty()
        if self._groups and self._limits.watch is not None and now >= self._memory_check_at:
            self._memory_check_at, _ = self._limits.watch.check(None)

    def remove_empty(self) -> None:
        """Remove empty groups, and kill the fork bombs among the others: they show only after some time."""
        if self._charged:
            self._forget_charged()
        if not self._groups:
            return
        self._reap_ended()
        self._groups = [group for group in self._groups if not self._removed(group)]
        self._killed.intersection_update(self.names())

    def await_empty(self) -> None:
        """Wait until all groups are removed: under gVisor a process leaves its group some time after its exit."""
        deadline, pause = time.monotonic() + EMPTY_SECONDS, 0.001
        while True:
            self.remove_empty()
            if self._charged:
                self._forget_charged(all_of_it=True)  # shared memory ends with the sandbox's namespaces
            if not (self._groups or self._charged) or time.monotonic() > deadline:
                return
            time.sleep(pause)
            pause = min(pause * 2, 0.05)

    def await_freed(self) -> bool:
        """Wait until the memory of ended namespaces is free, for which the kernel takes its time; return whether it was not.

        The next owner's first command would be killed for it.
        """
        if self._limits.cgroup is None:
            return False
        deadline, pause, waited = time.monotonic() + FREED_SECONDS, 0.001, False
        while self._holds_much() and time.monotonic() < deadline:
            time.sleep(pause)
            pause, waited = min(pause * 2, 0.05), True
        return waited

    def _holds_much(self) -> bool:
        group, limit = self._parent, self._limits.values.get("memory")
        if limit is None:
            return False
        most = limit // FREED_SHARE
        return (group.number("memory") or 0) > most and (group.shared_memory() or 0) > most

    def _removed(self, group: Group) -> bool:
        parent = self._parent
        if self._limits.watch is not None:
            # Few system calls, by files that stay open: a fork bomb under gVisor delays each by a tenth of a second.
            if group.number("pids"):
                self._kill_left(group)
                return False
            if self._is_charged(group.name):
                group.close()
                self._charged.append(group.name)
                return True
        if group.remove(parent):
            return True
        # What is left of it: to make it again can fail, as its parent may have no memory left.
        left = parent.child(group.name, make=False)
        try:
            self._kill_left(left)
        finally:
            left.close()
        return group.remove(parent)

    def _kill_left(self, group: Group) -> None:
        """Kill what a killed op has left, and a fork bomb whose first process has exited before the limit.

        A fork bomb would use the sandbox's cpu for ever, and a process that escaped a kill would grow to one again.
        """
        watch = self._limits.watch
        if group.is_fork_bomb() or (
            watch is not None and self._bombs.has(group, watch, now=time.monotonic())
        ):
            self._killed.add(group.name)
            kill_members(group, exclude=0, on_timeout=self._end_init)
        elif group.name in self._killed:
            # Without waiting, and without the end of the init: the next sweep finds what is left. A process in a system
            # call that cannot be interrupted would hold up the executor.
            signal_members(group)

    def _is_charged(self, name: str) -> bool:
        """Return whether a group without processes is still charged memory, which its removal would stop counting."""
        group = self._parent.child(name, make=False)
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
