"""Mounts that depend on the init's namespaces: masks over /proc, POSIX queues, and /sys of its network."""

from __future__ import annotations

import errno
import os

from . import syscalls

# containerd's masked paths, and files that show addresses of the kernel or of physical memory.
MASKED_FILES = (
    "kcore", "keys", "kmsg", "latency_stats", "sched_debug", "sysrq-trigger", "timer_list", "timer_stats",
    "interrupts", "iomem", "ioports", "kallsyms", "vmallocinfo",
)  # fmt: skip
# gVisor's own directory tells the environment of the sidecar's container, with its token.
MASKED_DIRS = ("acpi", "asound", "gvisor", "scsi")
MASKED_SYS = (
    "devices/virtual/powercap", "firmware", "fs/cgroup", "fs/pstore", "kernel/debug", "kernel/security",
    "kernel/tracing",
)  # fmt: skip
READ_ONLY = ("bus", "fs", "irq", "sys")
QUIET = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC


def mask_proc(prefix: str) -> None:
    """Mask the files of `prefix`/proc that describe the host. Raises OSError."""
    proc = f"{prefix}/proc"
    for name in MASKED_FILES:
        if os.path.exists(f"{proc}/{name}"):
            syscalls.mount(f"{prefix}/dev/null", f"{proc}/{name}", None, syscalls.MS_BIND)
    for name in MASKED_DIRS:
        if os.path.isdir(f"{proc}/{name}"):
            syscalls.mount(
                "none", f"{proc}/{name}", "tmpfs", QUIET | syscalls.MS_RDONLY, "size=4k,nr_inodes=2"
            )
    for name in READ_ONLY:
        if os.path.isdir(f"{proc}/{name}"):
            syscalls.mount(f"{proc}/{name}", f"{proc}/{name}", None, syscalls.MS_BIND)
            flags = syscalls.MS_BIND | syscalls.MS_REMOUNT | syscalls.MS_RDONLY | QUIET
            syscalls.mount(None, f"{proc}/{name}", None, flags)


def mount_queues(prefix: str) -> list[str]:
    """Mount the POSIX queues of the current IPC namespace; return the mounts, [] if the kernel has none."""
    try:
        syscalls.mount("mqueue", f"{prefix}/dev/mqueue", "mqueue", QUIET)
    except OSError as error:
        if error.errno not in (errno.ENODEV, errno.EPERM, errno.ENOENT):
            raise
        return []
    return ["/dev/mqueue"]


def mount_sysfs(prefix: str) -> list[str]:
    """Mount a read-only /sys of the current network namespace; return the mounts, [] if not permitted."""
    try:
        syscalls.mount("sysfs", f"{prefix}/sys", "sysfs", QUIET | syscalls.MS_RDONLY)
    except PermissionError:
        return []
    mask_sysfs(f"{prefix}/sys")
    return ["/sys"]


def mask_sysfs(point: str) -> None:
    """Mask the directories of a sysfs that describe the host; raises OSError."""
    for name in MASKED_SYS:
        if os.path.isdir(f"{point}/{name}"):
            syscalls.mount("none", f"{point}/{name}", "tmpfs", syscalls.MS_RDONLY, "size=4k,nr_inodes=2")
