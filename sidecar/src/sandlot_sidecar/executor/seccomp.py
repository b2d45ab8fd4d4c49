"""Seccomp filters that deny system calls which no namespace isolates: keyrings, user namespaces, bpf, as Docker does.

A second filter is for gVisor only. It denies user namespaces, too: as root of one, code could mount a /proc whose
`gvisor/spec_environ` has the sidecar's token and whose `sys` has the pod's settings, and mount the pod's control groups.
gVisor also checks CAP_NET_ADMIN in the socket's network namespace, but acts on the caller's: with a raw socket from
another network namespace, code could rewrite its pod's packet filter.
"""

from __future__ import annotations

import errno
import os
import socket
import struct

from . import syscalls

_LOAD = 0x20
_EQUAL = 0x15
_AT_LEAST = 0x35
_HAS_BIT = 0x45
_RETURN = 0x06
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_X32 = 0x40000000

# By audit architecture: the denied system calls, then clone3, then clone and unshare.
# add_key, request_key, keyctl, bpf, perf_event_open, userfaultfd, open_by_handle_at, setns, kexec_load,
# kexec_file_load, and io_uring's three.
X86_64 = (0xC000003E, (248, 249, 250, 321, 298, 323, 304, 308, 246, 320, 425, 426, 427), 435, (56, 272))
I386 = (0x40000003, (286, 287, 288, 357, 336, 374, 342, 346, 283, 425, 426, 427), 435, (120, 310))
AARCH64 = (0xC00000B7, (217, 218, 219, 280, 241, 282, 265, 268, 104, 294, 425, 426, 427), 435, (220, 97))
ARM = (0x40000028, (309, 310, 311, 386, 364, 388, 371, 375, 347, 401, 425, 426, 427), 435, (120, 337))
MACHINES = {"x86_64": (X86_64, I386), "aarch64": (AARCH64, ARM)}


def _line(code: int, yes: int, no: int, value: int) -> bytes:
    return struct.pack("<HBBI", code, yes, no, value)


def _block(architecture: int, refused: tuple[int, ...], clone3: int, with_flags: tuple[int, ...]) -> bytes:
    lines = [_line(_LOAD, 0, 0, 0)]
    if architecture == X86_64[0]:
        lines += [_line(_AT_LEAST, 0, 1, _X32), _line(_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    for number in refused:
        lines += [_line(_EQUAL, 0, 1, number), _line(_RETURN, 0, 0, _ERRNO | errno.EPERM)]
    lines += [*_no_user_namespace(clone3, with_flags), _line(_RETURN, 0, 0, _ALLOW)]
    body = b"".join(lines)
    return _line(_EQUAL, 0, len(body) // 8, architecture) + body


def _no_user_namespace(clone3: int, with_flags: tuple[int, ...]) -> list[bytes]:
    """Return lines that deny a new user namespace; other calls pass, with their number still loaded."""
    # clone3 has its flags in memory, which a filter cannot read; on ENOSYS the C library falls back to clone.
    lines = [_line(_EQUAL, 0, 1, clone3), _line(_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    for number in with_flags:
        lines += [
            _line(_EQUAL, 0, 4, number),
            _line(_LOAD, 0, 0, 16),
            _line(_HAS_BIT, 0, 1, syscalls.CLONE_NEWUSER),
            _line(_RETURN, 0, 0, _ERRNO | errno.EPERM),
            _line(_RETURN, 0, 0, _ALLOW),
        ]
    return lines


def program(machine: str) -> bytes | None:
    """Return the filter for a machine, or None if it is unsupported."""
    tables = MACHINES.get(machine)
    if tables is None:
        return None
    return _line(_LOAD, 0, 0, 4) + b"".join(_block(*table) for table in tables) + _line(_RETURN, 0, 0, _ALLOW)


_SETSOCKOPT = {"x86_64": 54, "aarch64": 208}
_REPLACE = 64  # IPT_SO_SET_REPLACE and IP6T_SO_SET_REPLACE: replace a packet filter


def gvisor_program(machine: str) -> bytes | None:
    """Return the filter that denies user namespaces, changing a pod's packet filter, and socket marks.

    None if the machine is unsupported.
    """
    if machine not in _SETSOCKOPT:
        return None
    architecture, _, clone3, with_flags = MACHINES[machine][0]
    lines = [
        _line(_LOAD, 0, 0, 0),
        *_no_user_namespace(clone3, with_flags),
        _line(_EQUAL, 0, 9, _SETSOCKOPT[machine]),
        _line(_LOAD, 0, 0, 24),  # the level
        _line(_EQUAL, 0, 2, socket.SOL_SOCKET),
        _line(_LOAD, 0, 0, 32),  # the option
        _line(_EQUAL, 4, 5, socket.SO_MARK),
        _line(_EQUAL, 1, 0, socket.IPPROTO_IP),
        _line(_EQUAL, 0, 3, socket.IPPROTO_IPV6),
        _line(_LOAD, 0, 0, 32),
        _line(_EQUAL, 0, 1, _REPLACE),
        _line(_RETURN, 0, 0, _ERRNO | errno.EPERM),
    ]
    head = [_line(_LOAD, 0, 0, 4), _line(_EQUAL, 0, len(lines), architecture)]
    return b"".join([*head, *lines, _line(_RETURN, 0, 0, _ALLOW)])


def guard_gvisor() -> bool:
    """Install `gvisor_program` for this process and its children; return whether there is one. Raises OSError."""
    filters = gvisor_program(os.uname().machine)
    if filters is not None:
        syscalls.set_filter(filters)
    return filters is not None


_OWN = program(os.uname().machine)  # encoded before the forks of runners, which would each do it again


def install() -> None:
    """Install the filter for this process and its children; needs CAP_SYS_ADMIN. Raises OSError."""
    if _OWN is not None:
        syscalls.set_filter(_OWN)
