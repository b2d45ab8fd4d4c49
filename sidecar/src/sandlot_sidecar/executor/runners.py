"""The runners of a sandbox as the executor has them: started in control groups of their own, killed, and reaped."""

from __future__ import annotations

import os
import signal

from . import runner_factory
from .group_kill import kill_members
from .retired_groups import RetiredGroups

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from typing import Any

    from .group import Group
    from .init import Init
    from .limits import Limits
    from .namespaces import Home
    from .pod import Pod

KILLED_KEPT = 64  # runners that were killed, of which the server may still ask why


class Runners:
    """All that live now, why the last ones were lost, and the groups of those that have ended."""

    def __init__(self, *, limits: Limits, pod: Pod | None, init: Callable[[], Init]) -> None:
        """`init`: the sandbox's PID 1, which may be another one each time."""
        self.children: dict[int, runner_factory.Child] = {}  # by pidfd; also what sweeps the store
        self.retired = RetiredGroups(
            limits, end_init=lambda: init().end(), reap_orphans=lambda: self._reap_orphans(init())
        )
        self._limits = limits
        self._pod = pod
        self._init = init
        self._number = 0
        self._killed: dict[
            int, tuple[str, dict[str, Any]]
        ] = {}  # a runner's pid: its group, and its op's facts

    def start(self, *, home: Home, devpts: int) -> tuple[int, socket.socket]:
        """Fork a runner: its pid and its channel. Raises OSError."""
        self.retired.remove_empty()
        group, limiting = None, []
        cgroup = self._limits.cgroup
        if cgroup is not None:
            self._number += 1
            limiting = cgroup.limiting
            group = cgroup.group.child(group_name(self._number))
            self._limits.limit_runner(group)
        child, channel = runner_factory.fork_runner(
            home=home,
            init=self._init(),
            group=group,
            limiting=limiting,
            devpts=devpts,
            limits=self._limits.values,
            pod=self._pod,
            watch=self._limits.watch,
            number=self._number,
        )
        self.adopt(child)
        return child.pid, channel

    def first(self, home: Home, devpts: int) -> tuple[int, socket.socket] | None:
        """As `start`, for a sandbox that was just made: where it fails, whoever needs one asks for it and hears why."""
        try:
            return self.start(home=home, devpts=devpts)
        except OSError:
            return None

    def adopt(self, child: runner_factory.Child) -> None:
        """Wait for the end of a child, as for that of a runner."""
        self.children[child.fd] = child

    def limit(self) -> None:
        """Set the limits that hold now on all that live."""
        for child in self.children.values():
            if child.group:
                self._limits.limit_runner(child.group)

    def kill(self, runner: int) -> int:
        """Kill all of an op from here, where no bomb of the sandbox takes processor time away; how many died."""
        for child in self.children.values():
            if child.pid == runner and child.group:
                killed = kill_members(child.group, spare=runner, lost=self._init().end)
                self._limits.limit_runner(child.group)
                return killed
        name, _ = self._killed.get(runner, ("", {}))
        return self.retired.kill(name)

    def lost(self, runner: int) -> dict[str, Any]:
        """The facts of the op whose runner was lost: whose memory was used up, if any was."""
        for child in self.children.values():
            if child.pid == runner:
                return self._memory_facts(child)
        return self._killed.get(runner, ("", {}))[1]

    def _memory_facts(self, child: runner_factory.Child) -> dict[str, Any]:
        watch, cgroup = self._limits.watch, self._limits.cgroup
        if watch is not None and watch.take_mark(child.number):
            return {"signal": int(signal.SIGKILL), "oom": True}
        return child.memory_facts(cgroup.limiting if cgroup is not None else [])

    def ended(self, fd: int) -> None:
        """A runner has gone: forget it, and its group as soon as that is empty."""
        child = self.children.pop(fd)
        child.reap()
        if child.status and child.group:
            # Now: the kernel's counters go with the group.
            self._killed[child.pid] = child.group.name, self._memory_facts(child)
            if len(self._killed) > KILLED_KEPT:
                del self._killed[next(iter(self._killed))]
        child.forget()
        if child.group:
            self.retired.add(child.group)

    def end_all(self) -> None:
        """SIGKILL all of them, and wait until they are dead; what their ops have started is the init's to take along."""
        for child in self.children.values():
            try:
                os.kill(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for child in self.children.values():
            child.reap()

    def forget_all(self) -> None:
        """After `end_all` and the end of the init: before that, no group is empty."""
        for fd in list(self.children):
            self.ended(fd)

    def too_much_memory(self) -> None:
        """A look has found the sandbox above its limit of memory: kill the largest, and so on until it is not."""
        watch, cgroup = self._limits.watch, self._limits.cgroup
        assert watch is not None
        assert cgroup is not None
        watch.stop_ringing()
        runners = {child.group.name: child for child in self.children.values() if child.group}
        groups: list[Group] = [cgroup.group.child(name) for name in (*runners, *self.retired.names())]
        try:
            groups.sort(key=lambda group: group.number("memory") or 0)
            while groups and watch.excess():
                largest = groups.pop()
                child = runners.get(largest.name)
                if child is not None:
                    watch.mark(child.number)
                # Not its init, should it be a bomb: the runner, which looks for bombs, tells the server before.
                kill_members(largest, spare=child.pid if child is not None else 0, seconds=1.0)
                if child is not None:
                    self._limits.limit_runner(largest)
                watch.settle(largest)
                largest.close()
        finally:
            for group in groups:
                group.close()

    def _reap_orphans(self, init: Init) -> None:
        runner_factory.reap_orphans({init.pid, *(child.pid for child in self.children.values())})


def group_name(number: int | str) -> str:
    """Of a runner's group; an earlier sidecar's are not this one's."""
    return f"r{os.getpid()}-{number}"
