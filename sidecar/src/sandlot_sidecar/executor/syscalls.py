"""Linux system calls that Python 3.11 does not wrap."""

from __future__ import annotations

import ctypes
import os

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_MOVE = 0x2000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MS_RELATIME = 0x200000
MNT_DETACH = 2

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_NAME = 15
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4

RENAME_NOREPLACE = 1
FSPICK_CLOEXEC = 1
FSPICK_EMPTY_PATH = 8
FSCONFIG_SET_STRING = 1
FSCONFIG_CMD_RECONFIGURE = 7
AT_FDCWD = -100
AT_RECURSIVE = 0x8000
MOUNT_ATTR_RDONLY = 1

_SYS_CLONE = {"x86_64": 56, "aarch64": 220, "riscv64": 220, "ppc64le": 120}
_SYS_RENAMEAT2 = {"x86_64": 316, "aarch64": 276, "riscv64": 276, "ppc64le": 357}
_SYS_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SYS_KEYCTL = {"x86_64": 250, "aarch64": 219}
_KEYCTL_JOIN_SESSION_KEYRING = 1
_SECCOMP_SET_FILTER = 1
_SECCOMP_SPEC_ALLOW = 4
_SYS_FSCONFIG = 431
_SYS_FSPICK = 433
_SYS_MOUNT_SETATTR = 442
_SYS_OPEN_TREE = 428
_SYS_CLOSE_RANGE = 436
_SYS_MOVE_MOUNT = 429
_OPEN_TREE_CLONE = 1
_MOVE_MOUNT_F_EMPTY_PATH = 4
CAPABILITY_VERSION = 0x20080522
LAST_DESCRIPTOR = (1 << 32) - 1  # the highest that close_range takes

LIBC = ctypes.CDLL(None, use_errno=True)
# With its types declared, a call converts integers itself: every runner makes dozens.
_prctl = LIBC["prctl"]
_prctl.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)
# Holds the GIL during the call: a child of a raw clone could deadlock when it takes the GIL again.
_gil_libc = ctypes.PyDLL(None, use_errno=True)


def check(result: int, what: str) -> int:
    """Return the result; raises OSError that names `what` if it is negative."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else os.fsencode(text)


def unshare(flags: int) -> None:
    """Call unshare(2); raises OSError."""
    check(LIBC.unshare(flags), "unshare")


def setns(fd: int, kind: int) -> None:
    """Call setns(2): enter the namespace of a descriptor; raises OSError."""
    check(LIBC.setns(fd, kind), "setns")


def clone(flags: int) -> int:
    """Fork into new namespaces; return 0 in the child, its pid in the parent. Only for single-threaded processes."""
    number = _SYS_CLONE.get(os.uname().machine)
    if number is None:
        raise OSError(38, f"clone: unknown machine {os.uname().machine}")
    zero = ctypes.c_long(0)
    return check(
        _gil_libc.syscall(ctypes.c_long(number), ctypes.c_long(flags | 17), zero, zero, zero, zero), "clone"
    )


def mount(source: str | None, target: str, kind: str | None, flags: int = 0, data: str | None = None) -> None:
    """Call mount(2); raises OSError that names the target."""
    result = LIBC.mount(_bytes(source), _bytes(target), _bytes(kind), ctypes.c_ulong(flags), _bytes(data))
    check(result, f"mount {kind or 'bind'} on {target}")


def make_read_only(target: str) -> None:
    """Make a mount and all below it read-only (Linux 5.12); raises OSError."""
    attributes = (ctypes.c_uint64 * 4)(MOUNT_ATTR_RDONLY, 0, 0, 0)
    result = LIBC.syscall(
        ctypes.c_long(_SYS_MOUNT_SETATTR),
        ctypes.c_int(AT_FDCWD),
        _bytes(target),
        ctypes.c_uint(AT_RECURSIVE),
        attributes,
        ctypes.c_size_t(32),
    )
    check(result, f"read-only {target}")


def clone_tree(path: str) -> int:
    """Return a descriptor of a detached copy of a mount and all below it; raises OSError."""
    return _clone(path, AT_RECURSIVE)


def clone_mount(path: str) -> int:
    """Return a descriptor of a detached copy of a mount, without those below it; raises OSError."""
    return _clone(path, 0)


def _clone(path: str, more: int) -> int:
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | more
    result = LIBC.syscall(
        ctypes.c_long(_SYS_OPEN_TREE), ctypes.c_int(AT_FDCWD), _bytes(path), ctypes.c_uint(flags)
    )
    return check(result, f"open_tree {path}")


def attach_tree(tree: int, target: str) -> None:
    """Mount a detached copy at a path; raises OSError."""
    result = LIBC.syscall(
        ctypes.c_long(_SYS_MOVE_MOUNT),
        ctypes.c_int(tree),
        b"",
        ctypes.c_int(AT_FDCWD),
        _bytes(target),
        ctypes.c_uint(_MOVE_MOUNT_F_EMPTY_PATH),
    )
    check(result, f"move_mount to {target}")


def move_mount(source: str, target: str) -> None:
    """Mount at another path what is mounted at `source`; raises OSError."""
    mount(source, target, None, MS_MOVE)


def umount(target: str, flags: int = MNT_DETACH) -> None:
    """Call umount2(2); raises OSError."""
    check(LIBC.umount2(_bytes(target), flags), f"umount {target}")


def change_root(new: str) -> None:
    """Make a mount the root of this mount namespace, and unmount the earlier root; raises OSError."""
    os.chdir(new)
    check(LIBC.pivot_root(b".", b"."), "pivot_root")
    umount(".")
    os.chdir("/")


def prctl(option: int, first: int, second: int = 0) -> None:
    """Call prctl(2) with integer arguments; raises OSError."""
    check(_prctl(option, first, second, 0, 0), f"prctl {option}")


def set_name(name: str) -> None:
    """Set the process name that ps shows (15 bytes)."""
    zero = ctypes.c_ulong(0)
    check(LIBC.prctl(PR_SET_NAME, ctypes.c_char_p(name.encode()[:15]), zero, zero, zero), "prctl")


def bound_capabilities(keep: int) -> None:
    """Drop all capabilities outside a bit mask from the bounding set, which all children inherit."""
    for number in range(64):
        if keep >> number & 1:
            continue
        try:
            prctl(PR_CAPBSET_DROP, number)
        except OSError:
            break


def capset(mask: int, *, inheritable: int = 0) -> None:
    """Set the permitted and effective capabilities to a bit mask; raises OSError."""
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    low, high = mask & 0xFFFFFFFF, mask >> 32
    data = (ctypes.c_uint32 * 6)(low, low, inheritable & 0xFFFFFFFF, high, high, inheritable >> 32)
    check(LIBC.capset(header, data), "capset")


def close_range(first: int, last: int) -> None:
    """Close the descriptors from `first` to `last` (Linux 5.9), without a listing of them; raises OSError."""
    number = ctypes.c_long(_SYS_CLOSE_RANGE)
    check(LIBC.syscall(number, ctypes.c_uint(first), ctypes.c_uint(last), ctypes.c_uint(0)), "close_range")


def new_session_keyring() -> None:
    """Join a new session keyring, so that commands cannot read the keys of this process's parent."""
    number = _SYS_KEYCTL.get(os.uname().machine)
    if number is not None:
        LIBC.syscall(ctypes.c_long(number), ctypes.c_int(_KEYCTL_JOIN_SESSION_KEYRING), None)


class _FilterProgram(ctypes.Structure):
    # Declared here, not by each runner: a class of ctypes costs as much as the rest of the call.
    _fields_ = (("length", ctypes.c_ushort), ("filters", ctypes.c_char_p))


def set_filter(filters: bytes) -> None:
    """Install a seccomp filter, given as its encoded instructions; raises OSError."""
    program = _FilterProgram(len(filters) // 8, filters)
    number = _SYS_SECCOMP[os.uname().machine]
    # Without SPEC_ALLOW, older kernels slow filtered processes down as a mitigation of Spectre variant 4.
    for flags in (_SECCOMP_SPEC_ALLOW, 0):
        result = LIBC.syscall(
            ctypes.c_long(number),
            ctypes.c_uint(_SECCOMP_SET_FILTER),
            ctypes.c_uint(flags),
            ctypes.byref(program),
        )
        if result == 0:
            return
    check(result, "seccomp")


def rename_noreplace(source: str, target: str) -> None:
    """Rename, or fail with EEXIST if the target exists; raises OSError."""
    check(
        LIBC.syscall(
            ctypes.c_long(_SYS_RENAMEAT2[os.uname().machine]),
            ctypes.c_int(AT_FDCWD),
            _bytes(source),
            ctypes.c_int(AT_FDCWD),
            _bytes(target),
            ctypes.c_uint(RENAME_NOREPLACE),
        ),
        f"rename to {target}",
    )


def resize_tmpfs(root: int, size: int) -> None:
    """Set the size in bytes of the tmpfs whose root directory is open as `root`; raises OSError."""
    context = check(
        LIBC.syscall(
            ctypes.c_long(_SYS_FSPICK),
            ctypes.c_int(root),
            b"",
            ctypes.c_uint(FSPICK_CLOEXEC | FSPICK_EMPTY_PATH),
        ),
        "fspick",
    )
    try:
        for command, key, value in (
            (FSCONFIG_SET_STRING, b"size", str(size).encode()),
            (FSCONFIG_CMD_RECONFIGURE, None, None),
        ):
            check(
                LIBC.syscall(
                    ctypes.c_long(_SYS_FSCONFIG),
                    ctypes.c_int(context),
                    ctypes.c_uint(command),
                    key,
                    value,
                    ctypes.c_int(0),
                ),
                "fsconfig",
            )
    finally:
        os.close(context)


def in_use() -> tuple[int, int]:
    """Return the bytes of memory and the threads of the whole machine, by one system call; raises OSError."""
    # struct sysinfo: uptime, three load averages, total memory, free memory, …
    numbers = (ctypes.c_ulong * 16)()
    check(LIBC.sysinfo(numbers), "sysinfo")
    unit = ctypes.c_uint.from_buffer(numbers, 104).value
    return (numbers[4] - numbers[5]) * unit, ctypes.c_ushort.from_buffer(numbers, 80).value


def wipe(start: int, end: int) -> None:
    """Overwrite a range of this process's own memory with zeros."""
    if end > start:
        ctypes.memset(start, 0, end - start)
