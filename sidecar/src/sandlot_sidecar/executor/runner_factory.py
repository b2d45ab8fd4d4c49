"""Forks runners: each joins its cgroup and namespaces, closes other descriptors, and drops privileges."""

from __future__ import annotations

import gc
import os
import resource
import signal
import socket

from . import seccomp, syscalls, users
from .children import Process
from .counters import Baseline
from .privileges import drop_privileges
from .runner import Runner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    from .group import Group
    from .init import Init
    from .memory_watch import MemoryWatch
    from .namespaces import Home
    from .pod import Pod


class Child(Process):
    """A runner, or the process that sweeps the store."""

    def __init__(
        self, *, pid: int, group: Group | None, number: int = 0, baseline: Baseline | None = None
    ) -> None:
        super().__init__(pid)
        self.group = group
        self.number = number
        self.baseline = baseline
        self.fd = os.pidfd_open(pid)

    def memory_facts(self, limiting: list[Group]) -> dict[str, Any]:
        """Return the facts of the op it ran: whether, and whose, memory limit was reached."""
        if self.baseline is None or not self.group:
            return {}
        return self.baseline.memory_facts(self.group, limiting)

    @property
    def op_killed(self) -> bool:
        """Whether its last op was killed with all its processes."""
        return self.baseline is not None and self.baseline.killed

    @op_killed.setter
    def op_killed(self, value: bool) -> None:
        if self.baseline is not None:
            self.baseline.killed = value

    def forget(self) -> None:
        """Reap the child and close its descriptors, except its group's."""
        self.reap()
        os.close(self.fd)
        if self.baseline is not None:
            self.baseline.close()


def fork_work(work: Callable[[], None]) -> Child:
    """Run `work` in a forked child; raises OSError."""
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() == parent:
                work()
        except Exception as error:
            os.write(2, f"sandlot: a background process of the executor failed: {error!r}\n".encode())
        finally:
            os._exit(0)
    return Child(pid=pid, group=None)


def fork_runner(
    *,
    home: Home,
    init: Init,
    group: Group | None,
    limiting: list[Group],
    devpts: int,
    limits: dict[str, Any],
    pod: Pod | None,
    watch: MemoryWatch | None,
    number: int,
) -> tuple[Child, socket.socket]:
    """Fork a runner; return it and the server's end of its channel. Raises OSError.

    `limiting`: the groups above its own that have the sandbox's memory limit. `number`: of its own group.
    """
    parent_end, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    baseline = Baseline()
    baseline.set(oom=0, refused=sum(each.memory_refused() for each in limiting))
    pid = os.fork()
    if pid == 0:
        _main(
            home=home, init=init, group=group, limiting=limiting, devpts=devpts, limits=limits, pod=pod,
            channel=child_end, parent=parent, watch=watch, number=number, baseline=baseline,
        )  # fmt: skip
    child_end.close()
    return Child(pid=pid, group=group, number=number, baseline=baseline), parent_end


def _main(
    *,
    home: Home,
    init: Init,
    group: Group | None,
    limiting: list[Group],
    devpts: int,
    limits: dict[str, Any],
    pod: Pod | None,
    channel: socket.socket,
    parent: int,
    watch: MemoryWatch | None,
    number: int,
    baseline: Baseline,
) -> NoReturn:
    code = 1
    try:
        gc.disable()
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)
        namespaces = init.namespaces
        if init.net_id != os.stat(home.net).st_ino:
            syscalls.setns(namespaces["net"], syscalls.CLONE_NEWNET)
        opened: list[int] = []
        if group:
            group.join()
            opened = group.open_limits()
            if pod is None or pod.groups_hidden:
                _hide_groups()
        else:
            _limit_resources(limits)
        syscalls.setns(namespaces["pid"], syscalls.CLONE_NEWPID)
        keep = {0, 1, 2, channel.fileno(), home.proc, devpts, *opened}
        if group:
            keep.update(group.directories.values(), (each.descriptor("memory_refused") for each in limiting))
        if watch is not None:
            keep.update(watch.descriptors)
        close_others(home, keep)
        # Before dropping privileges: afterwards it cannot open some files of its own /proc.
        runner = Runner(
            channel=channel,
            group=group,
            limiting=limiting,
            init=init.pid,
            proc=home.proc,
            devpts=devpts,
            rootless=home.rootless,
            watch=watch,
            number=number,
            baseline=baseline,
        )
        if pod is None or pod.confinement.lacks_filter:
            seccomp.install()
        if pod is None:
            # The image's, not those of whoever started the gateway; an ordinary user cannot change them.
            drop_privileges(home.permitted(), groups=None if home.rootless else users.resolve(0).groups)
        else:
            runner.score.configure(pod.confinement.oom_score, kills=watch is None)
            pod.confinement.apply(home=home, permitted=home.permitted())
        syscalls.set_name("sandlot-runner")
        runner.serve()
        code = 0
    except BaseException as error:
        # The server sees the channel end; the reason belongs in the sidecar's log.
        os.write(2, f"sandlot: a runner failed: {error!r}\n".encode())
    finally:
        os._exit(code)


def _hide_groups() -> None:
    """Enter a new cgroup namespace, so that /proc/self/cgroup does not show the group's path on the host."""
    try:
        syscalls.unshare(syscalls.CLONE_NEWCGROUP)
    except OSError:
        return


def _limit_resources(limits: dict[str, Any]) -> None:
    for what, value in (
        (resource.RLIMIT_AS, limits.get("memory")),
        (resource.RLIMIT_NPROC, limits.get("pids")),
    ):
        if value is None:
            continue
        try:
            resource.setrlimit(what, (int(value), int(value)))
        except (OSError, ValueError):
            continue


def close_others(home: Home, keep: set[int]) -> None:
    """Close all descriptors but these."""
    first = 0
    try:
        for fd in sorted(fd for fd in keep if fd >= 0):
            if fd > first:
                syscalls.close_range(first, fd - 1)
            first = fd + 1
        syscalls.close_range(first, syscalls.LAST_DESCRIPTOR)
    except OSError:  # Linux before 5.9
        _close_listed(home, keep)


def _close_listed(home: Home, keep: set[int]) -> None:
    directory = os.open("self/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=home.proc)
    names = os.listdir(directory)
    for name in names:
        if int(name) not in keep:
            try:
                os.close(int(name))
            except OSError:
                continue
