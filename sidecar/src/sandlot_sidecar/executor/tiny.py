"""The smallest program that waits for ever, made here byte by byte: what PID 1 of a sandbox becomes."""

from __future__ import annotations

import os
import struct

ADDRESS = 0x400000
HEADERS = 64 + 56
# ELF's number of the machine, and a loop: pause() where there is one, else ppoll() of nothing.
MACHINES = {
    "x86_64": (62, bytes.fromhex("b822000000 0f05 ebf7")),
    "aarch64": (
        183,
        struct.pack(
            "<8I",
            0xD2800000,
            0xD2800001,
            0xD2800002,
            0xD2800003,
            0xD2800004,
            0xD2800928,
            0xD4000001,
            0x17FFFFF9,
        ),
    ),
}


def image(machine: str) -> bytes | None:
    """The program as an ELF file; None for a machine it was not written for."""
    known = MACHINES.get(machine)
    if known is None:
        return None
    number, code = known
    size = HEADERS + len(code)
    header = b"\x7fELF\2\1\1" + bytes(9)
    header += struct.pack(
        "<HHIQQQIHHHHHH", 2, number, 1, ADDRESS + HEADERS, 64, 0, 0, 64, 56, 1, 0, 0, 0
    )  # fmt: skip
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, ADDRESS, ADDRESS, size, size, 0x10000)
    return header + segment + code


def become(name: str) -> None:
    """Turn this process into the program; returns only where that cannot be done.

    Ignored signals stay ignored. Nobody can trace or read it: its file grants execution, not reading. gVisor runs
    no such file; there it is one that can be read, and has nothing to tell.
    """
    program = image(os.uname().machine)
    if program is None:
        return
    for mode in (0o111, 0o555):
        _run(program, name=name, mode=mode)


def _run(program: bytes, *, name: str, mode: int) -> None:
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    try:
        os.write(fd, program)
        os.fchmod(fd, mode)
        # A file that is open for writing cannot be run.
        readable = os.open(f"/proc/self/fd/{fd}", os.O_PATH | os.O_CLOEXEC)
        os.close(fd)
        fd = readable
        os.execve(fd, [name], {})
    except OSError:
        os.close(fd)
