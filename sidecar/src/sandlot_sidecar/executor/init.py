"""PID 1 of the sandbox: gives it /proc, then does nothing but exist; it holds no descriptor and no secret."""

from __future__ import annotations

import os
import signal
import socket
import struct

from . import init_birth, init_mounts, syscalls, tiny
from .errors import SetupError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .namespaces import Home

PF_EXITING = 4  # of the flags in /proc/PID/stat, from the kernel's sched.h
_IGNORED = struct.pack("<4Q", int(signal.SIG_IGN), 0, 0, 0)  # the kernel's sigaction
_SIGNALS, _CAPABILITIES = 64, 64  # more than there are: the kernel refuses those beyond
_NO_CAPABILITIES = struct.pack("<2I", syscalls.CAPABILITY_VERSION, 0), bytes(24)


class Init:
    """The running PID 1: its pid outside, its pidfd, its namespaces, and what was mounted with it."""

    def __init__(self, *, pid: int, home: Home, mounts: list[str], go: int, last: bytes) -> None:
        """`last`: the calls that it is told to make by `go`."""
        self.pid = pid
        self.mounts = mounts
        self._go = go
        self._last = last
        self.fd = os.pidfd_open(pid)
        # Its children's is its own, and gVisor has the own one only.
        names = ("pid", "net")
        # Only now: once told to go, the init is closed even to an executor without the machine's root.
        self.namespaces = {
            name: os.open(f"{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=home.proc) for name in names
        }
        self.net_id = os.stat(self.namespaces["net"]).st_ino

    def go(self) -> None:
        """The root is in place: let it close everything and settle."""
        os.write(self._go, self._last)
        os.close(self._go)
        self._go = -1

    def ending(self, home: Home) -> bool:
        """Whether it has ended, or is on its way to and kills all that it has adopted."""
        try:
            stat = home.read(f"{self.pid}/stat")
        except OSError:
            return True
        return bool(int(stat.rpartition(b")")[2].split()[6]) & PF_EXITING)

    def end(self) -> None:
        """Let it end as if it had done so by itself: its loss is noticed and mended."""
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def kill(self) -> None:
        """End it, and with it everything in the sandbox; waits until that is done."""
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        try:
            # Its end waits until all that ran inside is reaped, also an op whose runner died before it: it is ours.
            while os.waitpid(-1, 0)[0] != self.pid:
                continue
        except ChildProcessError:
            pass
        self.forget()

    def forget(self) -> None:
        """Reap it and close what is known of it."""
        try:
            os.waitpid(self.pid, 0)
        except ChildProcessError:
            pass
        for fd in (self.fd, *self.namespaces.values()):
            os.close(fd)
        if self._go >= 0:
            os.close(self._go)
            self._go = -1


def start(
    *,
    home: Home,
    program: tiny.Program,
    prefix: str,
    hostname: str | None,
    own_network: bool,
    own_ipc: bool = True,
) -> Init:
    """Make the namespaces and their init; `prefix` is where the sandbox's root is mounted by now.

    Raises SetupError or OSError. The init waits for go(). Without `hostname` or `own_ipc` the caller's are kept; the
    caller is in the new ones afterwards, but in the network of its home.
    """
    syscalls.unshare(
        (syscalls.CLONE_NEWIPC if own_ipc else 0) | (syscalls.CLONE_NEWUTS if hostname is not None else 0)
    )
    if hostname is not None:
        socket.sethostname(hostname)
    told_read, told_write = os.pipe2(os.O_CLOEXEC)
    status_read, status_write = os.pipe2(os.O_CLOEXEC)
    fds = {told_read, told_write, status_read, status_write}
    try:
        born = init_birth.bear(
            home, program, prefix=prefix, own_network=own_network, fds=(told_read, status_write)
        )
        os.close(status_write)
        fds.remove(status_write)
        try:
            calls, mount = _first_calls(program.machine, born.memory, prefix)
            os.write(told_write, calls)
            results = tiny.results(os.read(status_read, tiny.SIZE))
            if len(results) <= mount or results[mount] != 0:
                reason = os.strerror(-results[mount]) if len(results) > mount else "it died"
                raise SetupError(f"the sandbox's init failed: {reason}")
            init_mounts.mask_proc(prefix)
            mounts = ["/proc", *init_mounts.mount_queues(prefix), *born.mounts]
            init = Init(
                pid=born.pid,
                home=home,
                mounts=mounts,
                go=told_write,
                last=_last_calls(program.machine, born.memory),
            )
        except BaseException:
            os.kill(born.pid, signal.SIGKILL)
            os.waitpid(born.pid, 0)
            raise
        fds.remove(told_write)
        return init
    finally:
        for fd in fds:
            os.close(fd)


def _first_calls(machine: str, memory: int, prefix: str) -> tuple[bytes, int]:
    """What it does in the root that is being made, and which of these calls mounts /proc."""
    calls = tiny.Calls(machine, memory=memory)
    calls.add("prctl", syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    # Before anything else is there: gVisor lets code send all of them to PID 1. With SIGCHLD ignored the kernel reaps.
    for number in range(1, _SIGNALS + 1):
        calls.add("rt_sigaction", number, _IGNORED, 0, 8)
    calls.add("chdir", b"/\0")
    flags = init_mounts.QUIET
    calls.add("mount", b"proc\0", os.fsencode(f"{prefix}/proc") + b"\0", b"proc\0", flags, 0)
    return calls.packed(), _SIGNALS + 2


def _last_calls(machine: str, memory: int) -> bytes:
    calls = tiny.Calls(machine, memory=memory)
    calls.add("prctl", syscalls.PR_SET_NAME, b"init\0")
    calls.add("chdir", b"/\0")
    for number in range(_CAPABILITIES):
        calls.add("prctl", syscalls.PR_CAPBSET_DROP, number)
    calls.add("capset", *_NO_CAPABILITIES)
    calls.add("prctl", syscalls.PR_SET_DUMPABLE, 0)
    for number in (2, 1, 0):
        calls.add("close", number)
    return calls.packed()
