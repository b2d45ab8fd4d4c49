"""PID 1 of the sandbox: gives it /proc, then does nothing but exist; it holds no descriptor and no secret."""

from __future__ import annotations

import errno
import os
import signal
import socket
import struct
from fcntl import ioctl

from . import syscalls, tiny
from .errors import SetupError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from .namespaces import Home

# What containerd masks, and besides what tells addresses of the kernel's or of the machine's memory.
MASKED_FILES = (
    "kcore", "keys", "kmsg", "latency_stats", "sched_debug", "sysrq-trigger", "timer_list", "timer_stats",
    "interrupts", "iomem", "ioports", "kallsyms", "vmallocinfo",
)  # fmt: skip
MASKED_DIRS = ("acpi", "asound", "scsi")
MASKED_SYS = (
    "devices/virtual/powercap", "firmware", "fs/cgroup", "fs/pstore", "kernel/debug", "kernel/security",
    "kernel/tracing",
)  # fmt: skip
READ_ONLY = ("bus", "fs", "irq", "sys")
PF_EXITING = 4  # of the flags in /proc/PID/stat, from the kernel's sched.h
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914


class Init:
    """The running PID 1: its pid outside, its pidfd, its namespaces, and what it mounted."""

    def __init__(self, *, pid: int, go: int, home: Home, mounts: list[str]) -> None:
        self.pid = pid
        self.mounts = mounts
        self._go = go
        self.fd = os.pidfd_open(pid)
        # Its children's is its own, and gVisor has the own one only.
        names = ("pid", "net", "ipc", "uts")
        # Only now: once told to go, the init is closed even to an executor without the machine's root.
        self.namespaces = {
            name: os.open(f"{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=home.proc) for name in names
        }
        self.net_id = os.stat(self.namespaces["net"]).st_ino

    def enter(self) -> None:
        """Move the calling process into the sandbox's uts and ipc namespaces."""
        syscalls.setns(self.namespaces["uts"], syscalls.CLONE_NEWUTS)
        syscalls.setns(self.namespaces["ipc"], syscalls.CLONE_NEWIPC)

    def go(self) -> None:
        """The root is in place: close everything and settle."""
        os.write(self._go, b"g")
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


def start(*, home: Home, prefix: str, hostname: str | None, own_network: bool, own_ipc: bool = True) -> Init:
    """Make the namespaces and their init; `prefix` is where the sandbox's root is mounted by now.

    Raises SetupError or OSError. The init waits for go(). Without `hostname` or `own_ipc` the caller's are kept.
    """
    flags = syscalls.CLONE_NEWPID
    if own_ipc:
        flags |= syscalls.CLONE_NEWIPC
    if hostname is not None:
        flags |= syscalls.CLONE_NEWUTS
    if own_network:
        flags |= syscalls.CLONE_NEWNET
    status_read, status_write = os.pipe2(os.O_CLOEXEC)
    go_read, go_write = os.pipe2(os.O_CLOEXEC)
    pid = syscalls.clone(flags)
    if pid == 0:
        _main(
            prefix=prefix, hostname=hostname, own_network=own_network, status=status_write, go=go_read,
            other_ends=(status_read, go_write),
        )  # fmt: skip
    os.close(status_write)
    os.close(go_read)
    report = b""
    while part := os.read(status_read, 65536):
        report += part
    os.close(status_read)
    text = os.fsdecode(report)
    if not text.startswith("ok\n"):
        os.close(go_write)
        os.waitpid(pid, 0)
        raise SetupError(f"the sandbox's init failed: {text or 'it died'}")
    return Init(pid=pid, go=go_write, home=home, mounts=text.split("\n")[1:-1])


def _main(
    *, prefix: str, hostname: str | None, own_network: bool, status: int, go: int, other_ends: tuple[int, ...]
) -> NoReturn:
    try:
        for fd in other_ends:
            os.close(fd)
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        # As PID 1 a signal without a handler cannot reach it; Python's own SIGINT handler would end it.
        for number in range(1, signal.NSIG):
            if number not in (signal.SIGKILL, signal.SIGSTOP):
                try:
                    signal.signal(number, signal.SIG_IGN)
                except (OSError, ValueError):
                    continue
        if hostname is not None:
            socket.sethostname(hostname)
        if own_network:
            _loopback_up()
        mounted = _mount(prefix, own_network=own_network)
        os.write(status, os.fsencode("ok\n" + "".join(f"{point}\n" for point in mounted)))
        os.close(status)
        if os.read(go, 1) != b"g":
            os._exit(0)
        _forget_everything()
        tiny.become("init")
        while True:
            # Children are reaped by the kernel, since SIGCHLD is ignored: no wake-up is ever needed.
            signal.pause()
    except BaseException as error:
        try:
            os.write(status, os.fsencode(str(error)))
        finally:
            os._exit(1)


def _loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", ioctl(sock, _SIOCGIFFLAGS, request))[1]
        if not flags & 1:  # gVisor's is up at once, and cannot be set
            ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | 1))


def _mount(prefix: str, *, own_network: bool) -> list[str]:
    quiet = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    proc = f"{prefix}/proc"
    syscalls.mount("proc", proc, "proc", quiet)
    mounted = ["/proc"]
    for name in MASKED_FILES:
        if os.path.exists(f"{proc}/{name}"):
            syscalls.mount(f"{prefix}/dev/null", f"{proc}/{name}", None, syscalls.MS_BIND)
    for name in MASKED_DIRS:
        if os.path.isdir(f"{proc}/{name}"):
            syscalls.mount(
                "none", f"{proc}/{name}", "tmpfs", quiet | syscalls.MS_RDONLY, "size=4k,nr_inodes=2"
            )
    for name in READ_ONLY:
        if os.path.isdir(f"{proc}/{name}"):
            syscalls.mount(f"{proc}/{name}", f"{proc}/{name}", None, syscalls.MS_BIND)
            flags = syscalls.MS_BIND | syscalls.MS_REMOUNT | syscalls.MS_RDONLY | quiet
            syscalls.mount(None, f"{proc}/{name}", None, flags)
    try:
        syscalls.mount("mqueue", f"{prefix}/dev/mqueue", "mqueue", quiet)
        mounted.append("/dev/mqueue")
    except OSError as error:
        if error.errno not in (errno.ENODEV, errno.EPERM, errno.ENOENT):
            raise
    if own_network:
        mounted += mount_sysfs(prefix)
    return mounted


def mount_sysfs(prefix: str) -> list[str]:
    """Mount a read-only /sys of the current network namespace; what was mounted, or [] where not allowed."""
    quiet = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC | syscalls.MS_RDONLY
    try:
        syscalls.mount("sysfs", f"{prefix}/sys", "sysfs", quiet)
    except PermissionError:
        return []
    mask_sysfs(f"{prefix}/sys")
    return ["/sys"]


def mask_sysfs(point: str) -> None:
    """Show empty directories there in place of what is the machine's own; raises OSError."""
    for name in MASKED_SYS:
        if os.path.isdir(f"{point}/{name}"):
            syscalls.mount("none", f"{point}/{name}", "tmpfs", syscalls.MS_RDONLY, "size=4k,nr_inodes=2")


def _forget_everything() -> None:
    syscalls.set_name("init")
    with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    # /proc/1/cmdline can be read by anyone inside: the sidecar's arguments are none of their business.
    for start, end in ((45, 46), (47, 48)):
        syscalls.wipe(int(fields[start]), int(fields[end]))
    for name in os.listdir("/proc/self/fd"):
        try:
            os.close(int(name))
        except OSError:
            continue
    os.chdir("/")
    syscalls.bound_capabilities(0)
    syscalls.capset(0)
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
