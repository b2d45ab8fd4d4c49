"""Starts a sandbox's runners in their own control groups, kills and reaps them."""

from __future__ import annotations

import errno
import os
import signal

from . import children, runner_factory
from .errors import ExecutorError
from .group_kill import kill_members
from .retired_groups import RetiredGroups

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from typing import Any

    from . import cgroups
    from .group import Group
    from .init import Init
    from .limits import Limits
    from .namespaces import Home
    from .pod import Pod

KILLED_KEPT = 64  # killed runners whose facts are kept for the server to request


class Runners:
    """The live runners, the facts of killed ones, and the groups of ended ones."""

    def __init__(self, *, limits: Limits, pod: Pod | None, init: Callable[[], Init]) -> None:
        """`init`: returns the sandbox's current PID 1."""
        # By pidfd; includes the process that sweeps the store.
        self.children: dict[int, runner_factory.Child] = {}
        self.retired = RetiredGroups(limits, end_init=lambda: init().kill(), reap_ended=children.reap_ended)
        self._limits = limits
        self._pod = pod
        self._init = init
        self._number = 0
        # a runner's pid -> its group's name, its op's facts
        self._killed: dict[int, tuple[str, dict[str, Any]]] = {}

    def start(self, *, home: Home, devpts: int) -> tuple[int, socket.socket]:
        """Fork a runner; return its pid and its channel. Raises OSError, and ExecutorError if the memory is full."""
        self.retired.remove_empty()
        child, channel = self.fork(home=home, init=self._init(), devpts=devpts, limits=self._limits.values)
        self.adopt(child)
        return child.pid, channel

    def _make_group(self, cgroup: cgroups.Sandbox) -> Group:
        before = sum(each.memory_refused() for each in cgroup.limiting)
        try:
            return cgroup.group.child(group_name(self._number))
        except OSError as error:
            # The kernel's own memory for the group counts, too, and code can leave none.
            if (
                error.errno == errno.ENOMEM
                and sum(each.memory_refused() for each in cgroup.limiting) > before
            ):
                raise ExecutorError("memory_full", "the sandbox's memory is full") from error
            raise

    def fork(
        self, *, home: Home, init: Init, devpts: int, limits: dict[str, Any]
    ) -> tuple[runner_factory.Child, socket.socket]:
        """Fork a runner for the processes of `init`, which the caller watches and reaps; raises as `start` does."""
        group, limiting = None, []
        cgroup = self._limits.cgroup
        if cgroup is not None:
            self._number += 1
            limiting = cgroup.limiting
            group = self._make_group(cgroup)
            self._limits.limit_runner(group)
        try:
            return runner_factory.fork_runner(
                home=home,
                init=init,
                group=group,
                limiting=limiting,
                devpts=devpts,
                limits=self._limits.of_processes(limits),
                pod=self._pod,
                watch=self._limits.watch,
                number=self._number,
            )
        except OSError:
            if cgroup is not None and group is not None:
                group.remove(cgroup.group)  # otherwise the proof of a reset would find it
            raise

    def try_start(self, home: Home, devpts: int) -> tuple[int, socket.socket] | None:
        """Start a runner as `start` does, or return None: a later request for a runner reports the reason."""
        try:
            return self.start(home=home, devpts=devpts)
        except (OSError, ExecutorError):
            return None

    def adopt(self, child: runner_factory.Child) -> None:
        """Watch and reap a child like a runner."""
        self.children[child.fd] = child

    def limit(self) -> None:
        """Apply the current limits to all live runners."""
        for child in self.children.values():
            if child.group:
                self._limits.limit_runner(child.group)

    def note_kill(self, runner: int) -> None:
        """Note that a job is about to `kill` an op: by the time it does, the runner's end may have been handled."""
        for child in self.children.values():
            if child.pid == runner:
                child.op_killed = True
        name, _ = self._killed.get(runner, ("", {}))
        self.retired.note_kill(name)

    def kill(self, runner: int) -> dict[str, Any]:
        """Kill an op from the executor, which a fork bomb cannot starve of CPU; return how many died.

        `init_killed`: they could be killed only with the init.
        """
        init_killed = False

        def kill_init() -> None:
            nonlocal init_killed
            init_killed = True
            self._init().kill()

        for child in self.children.values():
            if child.pid == runner and child.group:
                killed = kill_members(child.group, exclude=runner, on_timeout=kill_init)
                self._limits.limit_runner(child.group)
                break
        else:
            name, _ = self._killed.get(runner, ("", {}))
            killed = self.retired.kill(name, end_init=kill_init)
        return {"killed": killed, "init_killed": init_killed}

    def lost_op_facts(self, runner: int) -> dict[str, Any]:
        """Return the facts of the op whose runner was lost: whether, and whose, memory limit was reached."""
        for child in self.children.values():
            if child.pid == runner:
                return self._memory_facts(child)
        return self._killed.get(runner, ("", {}))[1]

    def _memory_facts(self, child: runner_factory.Child) -> dict[str, Any]:
        watch, cgroup = self._limits.watch, self._limits.cgroup
        if watch is not None and watch.take_mark(child.number):
            return {"signal": int(signal.SIGKILL), "oom": True}
        return child.memory_facts(cgroup.limiting if cgroup is not None else [])

    def on_ended(self, fd: int) -> None:
        """Reap an ended runner, and retire its group."""
        child = self.children.pop(fd)
        child.reap()
        if child.status and child.group:
            # Read now: removing the group removes its counters.
            self._killed[child.pid] = child.group.name, self._memory_facts(child)
            if len(self._killed) > KILLED_KEPT:
                del self._killed[next(iter(self._killed))]
        killed = child.op_killed
        child.forget()
        if child.group:
            self.retired.add(child.group, killed=killed)

    def end_all(self) -> None:
        """SIGKILL all runners and wait for their exit; their ops' processes end with the init."""
        self.kill_all()
        for child in self.children.values():
            child.reap()

    def kill_all(self) -> None:
        """SIGKILL all runners."""
        for child in self.children.values():
            child.kill()

    def forget_all(self) -> None:
        """Retire all runners, after `end_all` and the init's exit: before that, no group is empty."""
        for fd in list(self.children):
            self.on_ended(fd)

    def enforce_memory_limit(self) -> None:
        """Kill the largest groups until the sandbox is below its memory limit."""
        watch, cgroup = self._limits.watch, self._limits.cgroup
        assert watch is not None
        assert cgroup is not None
        watch.clear_alarm()
        runners = {child.group.name: child for child in self.children.values() if child.group}
        groups: list[Group] = [
            cgroup.group.child(name, make=False) for name in (*runners, *self.retired.names())
        ]
        try:
            groups.sort(key=lambda group: group.number("memory") or 0)
            while groups and watch.excess():
                largest = groups.pop()
                child = runners.get(largest.name)
                if child is not None:
                    watch.mark(child.number)
                else:
                    self.retired.note_kill(largest.name)
                # No `on_timeout`: of a fork bomb the runner first reports to the server, then kills the init.
                kill_members(largest, exclude=child.pid if child is not None else 0, seconds=1.0)
                if child is not None:
                    self._limits.limit_runner(largest)
                watch.settle(largest)
                largest.close()
        finally:
            for group in groups:
                group.close()


def group_name(number: int | str) -> str:
    """Return the name of a runner's group; the executor's pid tells it from an earlier sidecar's."""
    return f"r{os.getpid()}-{number}"
