"""Forks runners: each closes, enters, joins, and drops what user code must not have."""

from __future__ import annotations

import gc
import os
import resource
import signal
import socket

from . import seccomp, syscalls
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


class Child:
    """A runner as its parent sees it."""

    def __init__(
        self, *, pid: int, group: Group | None, number: int = 0, baseline: Baseline | None = None
    ) -> None:
        self.pid = pid
        self.group = group
        self.number = number
        self.baseline = baseline
        self.status = 0  # as waitpid told it
        self.fd = os.pidfd_open(pid)

    def reap(self) -> None:
        """Wait for it; it has ended or is about to."""
        try:
            _, self.status = os.waitpid(self.pid, 0)
        except ChildProcessError:
            pass

    def memory_facts(self, limiting: list[Group]) -> dict[str, Any]:
        """Of the op that it ran when it was lost: whose memory was used up, if any was."""
        if self.baseline is None or not self.group:
            return {}
        return self.baseline.memory_facts(self.group, limiting)

    def forget(self) -> None:
        """Reap it and close what is known of it, but its group."""
        self.reap()
        os.close(self.fd)
        if self.baseline is not None:
            self.baseline.close()


def reap_orphans(known: set[int]) -> None:
    """Reap ops whose runner died before them; they have become this process's children."""
    flags = os.WEXITED | os.WNOHANG
    try:
        while (found := os.waitid(os.P_ALL, 0, flags | os.WNOWAIT)) is not None and found.si_pid not in known:
            os.waitpid(found.si_pid, 0)
    except ChildProcessError:
        return


def fork_work(work: Callable[[], None]) -> Child:
    """Do something that takes its time in a child of its own; raises OSError."""
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() == parent:
                work()
        except Exception as error:
            os.write(2, f"sandlot: work beside failed: {error!r}\n".encode())
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
    """Fork a runner; returns it and the server's end of its channel. Raises OSError.

    `limiting`: the groups above its own whose limit of memory is the sandbox's. `number`: of its own group.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    baseline = Baseline()
    baseline.set(oom=0, refused=sum(each.memory_refused() for each in limiting))
    pid = os.fork()
    if pid == 0:
        _main(
            home=home, init=init, group=group, limiting=limiting, devpts=devpts, limits=limits, pod=pod,
            channel=theirs, parent=parent, watch=watch, number=number, baseline=baseline,
        )  # fmt: skip
    theirs.close()
    return Child(pid=pid, group=group, number=number, baseline=baseline), ours


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
        if group:
            group.join()
            if pod is None or pod.groups_hidden:
                _hide_groups()
        else:
            _limit_resources(limits)
        syscalls.setns(namespaces["pid"], syscalls.CLONE_NEWPID)
        keep = {0, 1, 2, channel.fileno(), home.proc, devpts}
        if group:
            keep.update(group.directories.values(), (each.descriptor("memory_refused") for each in limiting))
        if watch is not None:
            keep.update(watch.descriptors)
        _close_others(home, keep)
        # Before the privileges go: without them some files of its own /proc are closed to it.
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
            drop_privileges(_permitted(home))
        else:
            runner.score.take(pod.confinement.oom_score, kills=watch is None)
            pod.confinement.bind(home=home, permitted=_permitted(home))
        syscalls.set_name("sandlot-runner")
        runner.serve()
        code = 0
    except BaseException as error:
        # The server sees the channel end; the reason belongs in the sidecar's log.
        os.write(2, f"sandlot: a runner failed: {error!r}\n".encode())
    finally:
        os._exit(code)


def _hide_groups() -> None:
    """/proc/self/cgroup then says "/", not where the sandbox lives on the machine."""
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


def _permitted(home: Home) -> int:
    text = home.read("self/status")
    start = text.index(b"CapPrm:") + 7
    return int(text[start : text.index(b"\n", start)], 16)


def _close_others(home: Home, keep: set[int]) -> None:
    directory = os.open("self/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=home.proc)
    names = os.listdir(directory)
    for name in names:
        if int(name) not in keep:
            try:
                os.close(int(name))
            except OSError:
                continue
