"""Writes the static program that is the first process of a sandbox's container: `python3 images/holder.py OUT [MACHINE]`.

No program of the user's image may run unconfined, so the container cannot start with its shell. This program stops
itself, and again after each SIGCONT. It needs no library, file or heap. Its machine code is written here as bytes, so
that no build needs a compiler. This module imports only the standard library, since a Dockerfile runs it, too.
"""

from __future__ import annotations

import platform
import struct
import sys
from pathlib import Path

_LOAD_AT = 0x400000
_HEADERS = 64 + 56  # ELF header and one program header

# ELF machine number and code: again: kill(getpid(), SIGSTOP); goto again.
_PROGRAMS = {
    "x86_64": (
        62,
        bytes.fromhex(
            "b827000000"  # mov eax, 39 (getpid)
            "0f05"  # syscall
            "89c7"  # mov edi, eax
            "be13000000"  # mov esi, 19 (SIGSTOP)
            "b83e000000"  # mov eax, 62 (kill)
            "0f05"  # syscall
            "ebe9"  # jmp again
        ),
    ),
    "aarch64": (
        183,
        struct.pack(
            "<6I",
            0xD2801588,  # mov x8, 172 (getpid)
            0xD4000001,  # svc 0
            0xD2800261,  # mov x1, 19 (SIGSTOP)
            0xD2801028,  # mov x8, 129 (kill)
            0xD4000001,  # svc 0
            0x17FFFFFB,  # b again
        ),
    ),
}


def program(machine: str) -> bytes:
    """Return the file for a machine (`uname -m`). Raises ValueError for an unsupported one."""
    if machine not in _PROGRAMS:
        raise ValueError(f"no holder for the machine {machine!r}; supported are {', '.join(_PROGRAMS)}")
    number, code = _PROGRAMS[machine]
    size = _HEADERS + len(code)
    identity = b"\x7fELF\x02\x01\x01" + bytes(9)  # 64 bits, little endian
    header = struct.pack("<HHIQQQIHHHHHH", 2, number, 1, _LOAD_AT + _HEADERS, 64, 0, 0, 64, 56, 1, 64, 0, 0)
    # One segment with the whole file, readable and executable.
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _LOAD_AT, _LOAD_AT, size, size, 0x10000)
    return identity + header + segment + code


def write(out: Path, machine: str) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(program(machine))
    out.chmod(0o755)


if __name__ == "__main__":
    write(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else platform.machine())
