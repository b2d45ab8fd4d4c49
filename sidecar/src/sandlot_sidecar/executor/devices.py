"""Builds the sandbox's /dev: harmless devices, its own devpts, shared memory."""

from __future__ import annotations

import os
import stat

from .. import kernel
from . import syscalls

NODES = ("null", "zero", "full", "random", "urandom", "tty")
LINKS = {
    "ptmx": "pts/ptmx",
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}


def build(
    target: str, *, shm_size: int, rootless: bool, all_there: bool = False, more: dict[str, str] | None = None
) -> None:
    """Mount a fresh /dev at `target`, an existing directory; raises OSError.

    With `all_there`, include the container's other devices, such as a GPU. `more`: other device files, by their names.
    """
    # nodev here and on the root disables device files that user code creates; the six below work because a bind mount
    # keeps its source's flags.
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV
    syscalls.mount("dev", target, "tmpfs", flags, "size=1m,mode=755")
    for name in NODES:
        if not os.path.exists(f"/dev/{name}"):
            continue
        os.close(os.open(f"{target}/{name}", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o666))
        _bind(f"/dev/{name}", f"{target}/{name}")
    for name, link in LINKS.items():
        os.symlink(link, f"{target}/{name}")
    for name, mode in (("pts", 0o755), ("shm", 0o1777), ("mqueue", 0o1777)):
        os.mkdir(f"{target}/{name}", mode)
    options = "newinstance,ptmxmode=0666,mode=0620" + ("" if rootless else ",gid=5")
    syscalls.mount("devpts", f"{target}/pts", "devpts", syscalls.MS_NOSUID | syscalls.MS_NOEXEC, options)
    syscalls.mount("shm", f"{target}/shm", "tmpfs", flags, f"size={shm_size},mode=1777")
    for name, source in (more or {}).items():
        os.close(os.open(f"{target}/{name}", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o666))
        _bind(source, f"{target}/{name}")
    if all_there:
        _add_others("/dev", target)


def _add_others(source: str, target: str) -> None:
    for entry in os.scandir(source):
        place = f"{target}/{entry.name}"
        mode = entry.stat(follow_symlinks=False).st_mode
        if os.path.lexists(place) or entry.name in ("console", "core"):
            continue
        if stat.S_ISDIR(mode):
            os.mkdir(place, stat.S_IMODE(mode))
            _add_others(entry.path, place)
        elif stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            os.close(os.open(place, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
            _bind(entry.path, place)


def _bind(source: str, target: str) -> None:
    """Bind a device read-only: it can be written to, but its mode, owner, times and attributes are the machine's."""
    syscalls.mount(source, target, None, syscalls.MS_BIND)
    if kernel.is_gvisor():  # there it would not prevent a chmod, which fails the proof of a reset
        return
    kept = os.statvfs(target).f_flag & (syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC)
    flags = syscalls.MS_BIND | syscalls.MS_REMOUNT | syscalls.MS_RDONLY
    syscalls.mount(None, target, None, flags | kept)
