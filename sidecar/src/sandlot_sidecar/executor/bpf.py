"""Loads, attaches, lists and detaches the BPF programs of a control group (v2)."""

from __future__ import annotations

import ctypes
import os
import sys

from .syscalls import LIBC, check

_SYS_BPF = {"x86_64": 321, "aarch64": 280}
_BPF_PROG_LOAD = 5
_BPF_PROG_ATTACH = 8
_BPF_PROG_DETACH = 9
_BPF_PROG_GET_FD_BY_ID = 13
_BPF_PROG_QUERY = 16
_MOST_PROGRAMS = 64  # the kernel's limit per attach type of a cgroup
_BPF_ALLOW_MULTI = 2  # run the parents' programs too; all must allow a packet
_BPF_REPLACE = 4


def _bpf(command: int, attributes: bytes, what: str) -> int:
    return _bpf_call(command, ctypes.create_string_buffer(attributes, 128), what)


def _bpf_call(command: int, attributes: ctypes.Array[ctypes.c_char], what: str) -> int:
    number = _SYS_BPF.get(os.uname().machine)
    if number is None:
        raise OSError(38, f"{what}: no bpf system call number for this machine")
    result = LIBC.syscall(
        ctypes.c_long(number), ctypes.c_int(command), attributes, ctypes.c_uint(len(attributes))
    )
    return check(result, what)


def load_program(kind: int, attach: int, code: bytes) -> int:
    """Load a BPF program and return its descriptor; raises OSError."""
    lines, terms = ctypes.create_string_buffer(code, len(code)), ctypes.create_string_buffer(b"Apache-2.0")
    attributes = (
        kind.to_bytes(4, sys.byteorder)
        + (len(code) // 8).to_bytes(4, sys.byteorder)
        + ctypes.addressof(lines).to_bytes(8, sys.byteorder)
        + ctypes.addressof(terms).to_bytes(8, sys.byteorder)
        + bytes(44)
        + attach.to_bytes(4, sys.byteorder)
    )
    return _bpf(_BPF_PROG_LOAD, attributes, "load a BPF program")


def attach_program(group: int, program: int, attach: int, *, instead_of: int | None) -> None:
    """Attach a program to a cgroup (v2), replacing `instead_of` if given; raises OSError."""
    flags = _BPF_ALLOW_MULTI if instead_of is None else _BPF_ALLOW_MULTI | _BPF_REPLACE
    values = (group, program, attach, flags, instead_of or 0)
    attributes = b"".join(value.to_bytes(4, sys.byteorder) for value in values)
    _bpf(_BPF_PROG_ATTACH, attributes, "attach a BPF program to the cgroup")


def detach_program(group: int, program: int, attach: int) -> None:
    """Detach a program from a cgroup; raises OSError."""
    attributes = b"".join(value.to_bytes(4, sys.byteorder) for value in (group, program, attach))
    _bpf(_BPF_PROG_DETACH, attributes, "detach a BPF program from the cgroup")


def attached_programs(group: int, attach: int) -> list[int]:
    """Return the ids of a cgroup's own programs of an attach type; raises OSError."""
    ids = (ctypes.c_uint32 * _MOST_PROGRAMS)()
    attributes = ctypes.create_string_buffer(
        group.to_bytes(4, sys.byteorder)
        + attach.to_bytes(4, sys.byteorder)
        + bytes(8)
        + ctypes.addressof(ids).to_bytes(8, sys.byteorder)
        + _MOST_PROGRAMS.to_bytes(4, sys.byteorder),
        128,
    )
    _bpf_call(_BPF_PROG_QUERY, attributes, "list the cgroup's BPF programs")
    return list(ids[: int.from_bytes(attributes.raw[24:28], sys.byteorder)])


def open_program(number: int) -> int:
    """Open the program with this id; raises OSError."""
    return _bpf(_BPF_PROG_GET_FD_BY_ID, number.to_bytes(4, sys.byteorder), "open a BPF program")
