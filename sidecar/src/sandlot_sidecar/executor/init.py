"""PID 1 of the sandbox: mounts /proc, then waits for ever; it holds no descriptor and no secret."""

from __future__ import annotations

import functools
import os
import signal
import socket
import struct

from . import init_mounts, init_process, init_program, syscalls
from .children import Process
from .errors import SetupError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .namespaces import Home

# Fields of /proc/PID/stat, counted from the state, which is the third; PF_EXITING is from the kernel's sched.h.
_FLAGS, _VSIZE = 6, 20
PF_EXITING = 4
_IGNORED = struct.pack("<4Q", int(signal.SIG_IGN), 0, 0, 0)  # the kernel's sigaction
_SIGNALS, _CAPABILITIES = 64, 64  # upper bounds: the kernel rejects numbers that it does not know
_NO_CAPABILITIES = struct.pack("<2I", syscalls.CAPABILITY_VERSION, 0), bytes(24)


class Init(Process):
    """The running PID 1: its pid on the host, its pidfd, its namespaces and its mounts."""

    def __init__(self, *, pid: int, home: Home, mounts: list[str], go: int, last: bytes) -> None:
        """`last`: the calls that `go` sends."""
        super().__init__(pid)
        self.mounts = mounts
        self._go = go
        self._last = last
        self.fd = os.pidfd_open(pid)
        # Not pid_for_children, which is the same and which gVisor lacks.
        names = ("pid", "net")
        # Before `go`: afterwards an executor that is not the host's root cannot open the init's namespaces.
        self.namespaces = {
            name: os.open(f"{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=home.proc) for name in names
        }
        self.net_id = os.stat(self.namespaces["net"]).st_ino

    def go(self) -> None:
        """Send the last calls, once the root is in place: drop capabilities and close all descriptors."""
        os.write(self._go, self._last)
        os.close(self._go)
        self._go = -1

    def ending(self, home: Home) -> bool:
        """Return whether the init has exited or is exiting, which kills all of its PID namespace."""
        try:
            stat = home.read(f"{self.pid}/stat")
        except (FileNotFoundError, ProcessLookupError):
            return True
        fields = stat.rpartition(b")")[2].split()
        # Under gVisor the flags are 0; what exits gives up its memory before it kills the others of its namespace.
        return bool(int(fields[_FLAGS]) & PF_EXITING) or int(fields[_VSIZE]) == 0

    def end(self) -> None:
        """Kill the init and with it the whole sandbox, and wait for the end."""
        self.kill()
        # The init exits only when its namespace is reaped, including orphaned ops, this process's children.
        self.reap_with_orphans()
        for fd in (self.fd, *self.namespaces.values()):
            os.close(fd)
        if self._go >= 0:
            os.close(self._go)
            self._go = -1


def start(
    *,
    home: Home,
    program: init_program.Program,
    prefix: str,
    hostname: str | None,
    own_network: bool,
    own_ipc: bool = True,
) -> Init:
    """Create the namespaces and their init; `prefix` is the mount point of the sandbox's root.

    Raises SetupError or OSError. The init waits for go(). Without `hostname` or `own_ipc`, the caller's UTS or IPC
    namespace is kept. The caller moves to the new ones, but stays in its home's network namespace.
    """
    syscalls.unshare(
        (syscalls.CLONE_NEWIPC if own_ipc else 0) | (syscalls.CLONE_NEWUTS if hostname is not None else 0)
    )
    if hostname is not None:
        socket.sethostname(hostname)
    calls_read, calls_write = os.pipe2(os.O_CLOEXEC)
    status_read, status_write = os.pipe2(os.O_CLOEXEC)
    fds = {calls_read, calls_write, status_read, status_write}
    try:
        process = init_process.start(
            home, program, prefix=prefix, own_network=own_network, fds=(calls_read, status_write)
        )
        os.close(status_write)
        fds.remove(status_write)
        try:
            calls, mount = _first_calls(program.machine, process.memory, prefix)
            os.write(calls_write, calls)
            results = init_program.results(os.read(status_read, init_program.SIZE))
            if len(results) <= mount or results[mount] != 0:
                reason = os.strerror(-results[mount]) if len(results) > mount else "it exited"
                raise SetupError(f"the sandbox's init failed: {reason}")
            init_mounts.mask_proc(prefix)
            mounts = ["/proc", *init_mounts.mount_queues(prefix), *process.mounts]
            init = Init(
                pid=process.pid,
                home=home,
                mounts=mounts,
                go=calls_write,
                last=_last_calls(program.machine, process.memory),
            )
        except BaseException:
            os.kill(process.pid, signal.SIGKILL)
            os.waitpid(process.pid, 0)
            raise
        fds.remove(calls_write)
        return init
    finally:
        for fd in fds:
            os.close(fd)


@functools.cache
def _first_calls(machine: str, memory: int, prefix: str) -> tuple[bytes, int]:
    """Return the calls to make in the unfinished root, and the index of the call that mounts /proc."""
    calls = init_program.Calls(machine, memory=memory)
    calls.add("prctl", syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    # Before user code runs: under gVisor it can send PID 1 any signal. Ignoring SIGCHLD makes the kernel reap.
    for number in range(1, _SIGNALS + 1):
        calls.add("rt_sigaction", number, _IGNORED, 0, 8)
    calls.add("chdir", b"/\0")
    flags = init_mounts.QUIET
    calls.add("mount", b"proc\0", os.fsencode(f"{prefix}/proc") + b"\0", b"proc\0", flags, 0)
    return calls.packed(), _SIGNALS + 2


@functools.cache
def _last_calls(machine: str, memory: int) -> bytes:
    calls = init_program.Calls(machine, memory=memory)
    calls.add("prctl", syscalls.PR_SET_NAME, b"init\0")
    calls.add("chdir", b"/\0")
    for number in range(_CAPABILITIES):
        calls.add("prctl", syscalls.PR_CAPBSET_DROP, number)
    calls.add("capset", *_NO_CAPABILITIES)
    calls.add("prctl", syscalls.PR_SET_DUMPABLE, 0)
    for number in (2, 1, 0):
        calls.add("close", number)
    return calls.packed()
