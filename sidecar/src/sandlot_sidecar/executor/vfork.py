"""Starts a program by vfork with only the system calls that it needs, in machine code.

CPython's `fork_exec` asks in the child for the disposition of every signal. Under gVisor that is a seventh of the time
of a short command, since each system call costs a switch of processes (docs/adr/0023). Here the child makes the calls
of a list, and leaves their results where its parent, which waits in vfork, can read them.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import struct
from itertools import accumulate

from . import syscalls
from .call_list import CALLS, END, RECORD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_RESULT = "q40x"  # of a record
_PADDING = (0,) * 6
# Of each machine, start(list) -> pid or negative error: vfork, and in the child: make each call of the list and write
# its result; exit with 127 at the end, or after a failed call other than execve. The child writes nothing to the stack,
# which it shares with its parent.
CODES = {
    "x86_64": bytes.fromhex(
        "53 4889fb b83a000000 0f05 4885c0 7402 5bc3"  # vfork; the parent returns
        "488b03 4885c0 782b 4989c4 488b7b08 488b7310 488b5318 4c8b5320 4c8b4328 0f05 488903 4883c330"
        "4885c0 79d3 4983fc3b 74cd b8e7000000 bf7f000000 0f05"
    ),
    "aarch64": struct.pack(
        "<23I",
        # clone(CLONE_VM | CLONE_VFORK | SIGCHLD); the parent returns
        0xAA0003E9, 0xD2882220, 0xD2800001, 0xD2800002, 0xD2800003, 0xD2800004, 0xD2801B88, 0xD4000001, 0xB4000040, 0xD65F03C0,
        0xF9400128, 0xB7F80128, 0xA9408520, 0xA9418D22, 0xF9401524, 0xD4000001, 0xF8030520,
        0xB6FFFF20, 0xF103751F, 0x54FFFEE0, 0xD2800FE0, 0xD2800BC8, 0xD4000001,
    ),
}  # fmt: skip
TIOCSCTTY = 0x540E
_PROT_READ, _PROT_EXEC, _MAP_PRIVATE = 1, 4, 2
_ACTION = 32  # bytes of the kernel's sigaction; zeros are SIG_DFL without flags and mask
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


class Starter:
    """Starts programs. Only for processes with one thread: another could change what the child reads."""

    def __init__(self) -> None:
        """Prepare the code; raises OSError where the machine cannot run it."""
        machine = os.uname().machine
        if machine not in CODES:
            raise OSError(errno.ENOSYS, f"vfork: no code for the machine {machine}")
        self._numbers = CALLS[machine]
        # With the GIL: the child could not take it again.
        function = ctypes.PYFUNCTYPE(ctypes.c_long, ctypes.c_void_p)
        self._run: Callable[[int], int] = function(_mapped(CODES[machine]))
        self._reset = _to_reset()

    def start(
        self,
        argv: Sequence[bytes],
        *,
        programs: Sequence[bytes],
        env: Sequence[bytes],
        cwd: bytes | None,
        fds: Sequence[int],
        terminal: bool,
    ) -> int:
        """Start the first of `programs` that can run in a new session; return its pid, which the caller waits for.

        `fds` are above 2 and become 0, 1 and 2; with `terminal`, 0 becomes the controlling one. Raises OSError, whose
        filename is `cwd` if that was the cause and else None, and ValueError for a null byte.
        """
        strings = [*argv, *env, *programs, cwd or b""]
        numbers = self._numbers
        sizes = [
            RECORD.size * (len(self._reset) + len(programs) + 7),
            _ACTION,
            8 * (len(argv) + len(env) + 2),
        ]
        text = b"\0".join((*strings, b""))
        if text.count(b"\0") != len(strings):
            raise ValueError("embedded null byte")
        # Not an array of ctypes: each size would be a new class, which only garbage collection frees.
        buffer = bytearray(sum(sizes) + len(text))
        at = ctypes.addressof(held := ctypes.c_char.from_buffer(buffer))
        action, pointers, texts = (at + end for end in accumulate(sizes))
        places = [texts, *(texts + end for end in accumulate(len(part) + 1 for part in strings))]
        vectors = (pointers, pointers + 8 * (len(argv) + 1))
        calls: list[tuple[int, ...]] = [(numbers["setsid"],)]
        calls += [(numbers["rt_sigaction"], number, action, 0, 8) for number in self._reset]
        calls += [(numbers["dup3"], fd, number, 0) for number, fd in enumerate(fds)]
        if terminal:
            calls.append((numbers["ioctl"], 0, TIOCSCTTY, 0))
        if cwd is not None:
            calls.append((numbers["chdir"], places[-2]))
        prepared = len(calls)
        start = len(argv) + len(env)
        calls += [(numbers["execve"], place, *vectors) for place in places[start : start + len(programs)]]
        records = [word for call in (*calls, (END,)) for word in (*call, *_PADDING[len(call) :])]
        struct.pack_into(f"{len(records)}q", buffer, 0, *records)
        words = [*places[: len(argv)], 0, *places[len(argv) : start], 0]
        struct.pack_into(f"{len(words)}q", buffer, sum(sizes[:2]), *words)
        buffer[sum(sizes) :] = text
        pid = self._run(at)
        del held  # the buffer may not move before
        if pid < 0:
            raise OSError(-pid, os.strerror(-pid))
        # A call that was not made, also since a signal ended the child, has its number here; so has a successful execve.
        results = struct.unpack_from(_RESULT * len(calls), buffer)
        reason = _reason(results, prepared=prepared)
        if reason:
            os.waitpid(pid, 0)
            failed_in_cwd = cwd is not None and results[prepared - 1] < 0
            raise OSError(reason, os.strerror(reason), os.fsdecode(cwd) if cwd and failed_in_cwd else None)
        return pid


def _reason(results: Sequence[int], *, prepared: int) -> int:
    """Return the error number of a failed start, else 0. `prepared`: number of calls before the first execve."""
    failed = [-result for result in results if result < 0]
    if any(result < 0 for result in results[:prepared]):
        return failed[0]
    if results[-1] >= 0:
        return 0
    # As execvp(3) has it: a program that exists but cannot run counts more than directories without it.
    return next((each for each in failed if each not in (errno.ENOENT, errno.ENOTDIR)), failed[-1])


def _to_reset() -> list[int]:
    """Return the signals that this process ignores and a program does not expect to be ignored.

    An exec resets those that it handles. Python's handler may run in the child before that: it only sets flags, in the
    memory that the child shares with this process.
    """
    return [number for number in _IGNORED_BY_PYTHON if signal.getsignal(number) == signal.SIG_IGN]


def _mapped(code: bytes) -> int:
    """Map machine code of at most 4 KiB for execution, never for writing; return its address. Raises OSError."""
    # From a file: systems that forbid executable anonymous memory allow it.
    fd = os.memfd_create("code", os.MFD_CLOEXEC)
    try:
        os.write(fd, code)
        mmap = syscalls.LIBC["mmap"]
        mmap.restype = ctypes.c_void_p
        words = (ctypes.c_void_p(None), ctypes.c_size_t(4096), ctypes.c_int(_PROT_READ | _PROT_EXEC))
        address = mmap(*words, ctypes.c_int(_MAP_PRIVATE), ctypes.c_int(fd), ctypes.c_long(0))
        if address == ctypes.c_void_p(-1).value:
            syscalls.check(-1, "mmap")
        return address
    finally:
        os.close(fd)
