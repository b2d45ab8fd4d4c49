"""Reads another process's seccomp filters, which the kernel shows only to a tracer."""

from __future__ import annotations

import ctypes
import errno
import os

_CONT, _DETACH, _SEIZE, _INTERRUPT, _GET_FILTER = 7, 17, 0x4206, 0x4207, 0x420C
_WALL = 0x40000000
MOST = 64

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)


def _call(request: int, pid: int, address: int = 0, data: object = None) -> int:
    result = _libc.ptrace(request, pid, address, data)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"ptrace: {os.strerror(number)}")
    return result


def seccomp_filters(pid: int) -> list[bytes]:
    """Return the instructions of every filter, oldest first; a stopped process stays stopped. Raises OSError."""
    _call(_SEIZE, pid)
    try:
        _call(_INTERRUPT, pid)
        # The tracee must be stopped.
        os.waitpid(pid, _WALL)
        found = []
        for index in range(MOST):
            try:
                length = _call(_GET_FILTER, pid, index)
            except OSError as error:
                if error.errno == errno.ENOENT:
                    return found
                raise
            program = ctypes.create_string_buffer(8 * length)
            _call(_GET_FILTER, pid, index, ctypes.addressof(program))
            found.append(program.raw)
        return found
    finally:
        _call(_DETACH, pid)
