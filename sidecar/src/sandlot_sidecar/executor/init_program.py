"""The program of a sandbox's PID 1: a static ELF file of some 300 bytes that makes the system calls that it reads.

It reads a list of calls, makes them, writes back their results, and reads the next list. Once a list has closed its
stdin, it sleeps for ever. It spares a fork of the interpreter, whose copying is most of a fork's cost.
"""

from __future__ import annotations

import ctypes
import os
import struct

from .call_list import CALLS, END, RECORD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

ADDRESS = 0x400000
MEMORY = 0x500000  # address of its list of calls
SIZE = 0x4000
MAX_LIST = 4096  # bytes of a list: a pipe transfers this many atomically
HEADERS = 64 + 2 * 56
# ELF machine number, and the code: read(0), make the calls, write(1), repeat; exit at end of file, pause (or ppoll of
# nothing) if the read fails.
MACHINES = {
    "x86_64": (
        62,
        bytes.fromhex(
            "31c0 31ff be00005000 ba00400000 0f05 4885c0 7450 7845 4989c4 bb00005000"
            "488b03 4885c0 781f 488b7b08 488b7310 488b5318 4c8b5320 4c8b4328 0f05 488903 4883c330 ebd9"
            "b801000000 bf01000000 be00005000 4c89e2 0f05 eba4"
            "b822000000 0f05 ebf7"
            "b8e7000000 bf01000000 0f05"
        ),
    ),
    "aarch64": (
        183,
        struct.pack(
            "<33I",
            0xD2800000, 0xD2A00A01, 0xD2880002, 0xD28007E8, 0xD4000001, 0xB4000320, 0xB7F80220, 0xAA0003F4, 0xD2A00A13,
            0xF9400268, 0xB7F800E8, 0xA9408660, 0xA9418E62, 0xF9401664, 0xD4000001, 0xF8030660, 0x17FFFFF9,
            0xD2800020, 0xD2A00A01, 0xAA1403E2, 0xD2800808, 0xD4000001, 0x17FFFFEA,
            0xD2800000, 0xD2800001, 0xD2800002, 0xD2800003, 0xD2800928, 0xD4000001, 0x17FFFFFA,
            0xD2800020, 0xD2800BC8, 0xD4000001,
        ),
    ),
}  # fmt: skip


def image(machine: str) -> bytes | None:
    """Return the program as an ELF file, or None for an unsupported machine."""
    known = MACHINES.get(machine)
    if known is None:
        return None
    number, code = known
    size = HEADERS + len(code)
    header = b"\x7fELF\2\1\1" + bytes(9)
    header += struct.pack(
        "<HHIQQQIHHHHHH", 2, number, 1, ADDRESS + HEADERS, 64, 0, 0, 64, 56, 2, 0, 0, 0
    )  # fmt: skip
    runs = struct.pack("<IIQQQQQQ", 1, 5, 0, ADDRESS, ADDRESS, size, size, 0x10000)
    writes = struct.pack("<IIQQQQQQ", 1, 6, 0, MEMORY, MEMORY, 0, SIZE, 0x10000)
    return header + runs + writes + code


class Calls:
    """Builds a list of system calls. Arguments are integers, or bytes that are passed by address."""

    def __init__(self, machine: str, *, memory: int) -> None:
        """`memory`: the list's address in the program. Raises OSError for an unsupported machine."""
        known = CALLS.get(machine)
        if known is None:
            raise OSError(38, f"no init for the machine {machine}: run the sidecar on x86_64 or aarch64")
        self._numbers = known
        self._memory = memory
        self._calls: list[tuple[int, list[int | bytes]]] = []

    def add(self, name: str, *arguments: int | bytes) -> None:
        """Append a call."""
        self._calls.append((self._numbers[name], list(arguments)))

    def packed(self) -> bytes:
        """Encode the list for the program."""
        at = self._memory + RECORD.size * (len(self._calls) + 1)
        records, data = b"", b""
        addresses: dict[bytes, int] = {}
        for number, arguments in self._calls:
            values = []
            for argument in arguments:
                if isinstance(argument, bytes):
                    if argument not in addresses:
                        addresses[argument] = at + len(data)
                        data += argument + bytes(-len(argument) % 8)
                    values.append(addresses[argument])
                else:
                    values.append(argument & (1 << 64) - 1)
            records += RECORD.pack(number, *values, *[0] * (5 - len(values)))
        records += RECORD.pack(END, *[0] * 5)
        assert len(records) + len(data) <= MAX_LIST
        return records + data


def results(answer: bytes) -> list[int]:
    """Decode the results that the program writes back; a failed call has its negative errno."""
    found = []
    for offset in range(0, len(answer) - RECORD.size + 1, RECORD.size):
        found.append(RECORD.unpack_from(answer, offset)[0])
    return found


def run_calls(libc: ctypes.CDLL, *, memory: ctypes.Array[ctypes.c_char]) -> NoReturn:
    """Make the calls as the program does, in Python, where the program cannot run."""
    while True:
        try:
            calls = os.read(0, SIZE)
        except OSError:
            break
        if not calls:
            os._exit(1)
        ctypes.memmove(memory, calls, len(calls))
        offset = 0
        while (record := RECORD.unpack_from(memory, offset))[0] >= 0:
            result = libc.syscall(*(ctypes.c_long(value - (value >> 63 << 64)) for value in record))
            struct.pack_into("<q", memory, offset, -ctypes.get_errno() if result < 0 else result)
            offset += RECORD.size
        try:
            os.write(1, memory.raw[: len(calls)])
        except OSError:
            continue
    while True:
        # The kernel reaps children, since SIGCHLD is ignored: no wake-up is needed.
        libc.pause()


class Program:
    """The program as executable memfds: an unreadable one, and a readable one as gVisor needs it."""

    def __init__(self) -> None:
        self.machine = os.uname().machine
        self._image = image(self.machine)
        self._files: dict[int, int] = {}  # by mode
        self._modes = [0o111, 0o555] if self._image is not None else []

    def files(self, proc: int) -> list[tuple[int, int]]:
        """Return mode and descriptor of each file that may run here. `proc`: a /proc. Raises OSError."""
        return [(mode, self._file(mode, proc)) for mode in list(self._modes)]

    def exclude(self, mode: int) -> None:
        """Do not offer the file of this mode any more: it cannot run here."""
        self._modes.remove(mode)
        os.close(self._files.pop(mode))

    def _file(self, mode: int, proc: int) -> int:
        if mode not in self._files:
            fd = os.memfd_create("init", os.MFD_CLOEXEC)
            try:
                os.write(fd, self._image or b"")
                os.fchmod(fd, mode)
                # A file that is open for writing cannot be executed.
                self._files[mode] = os.open(f"self/fd/{fd}", os.O_PATH | os.O_CLOEXEC, dir_fd=proc)
            finally:
                os.close(fd)
        return self._files[mode]
