"""What machine code of ours reads: a list of system calls, each of which its result replaces."""

from __future__ import annotations

import struct

RECORD = struct.Struct("<q5Q")  # the number of a call (afterwards its result) and five arguments
END = -1  # number of the last record
# Numbers of the calls by machine.
_GENERIC = {
    "dup3": 24,
    "ioctl": 29,
    "mount": 40,
    "chdir": 49,
    "close": 57,
    "capset": 91,
    "rt_sigaction": 134,
    "setsid": 157,
    "prctl": 167,
    "execve": 221,
    "close_range": 436,
}
CALLS = {
    "x86_64": {
        "close": 3,
        "rt_sigaction": 13,
        "ioctl": 16,
        "execve": 59,
        "chdir": 80,
        "setsid": 112,
        "capset": 126,
        "prctl": 157,
        "mount": 165,
        "dup3": 292,
    },
    "aarch64": _GENERIC,
    "riscv64": _GENERIC,
    "ppc64le": {"close": 6, "chdir": 12, "mount": 21, "prctl": 171, "rt_sigaction": 173, "capset": 184},
}
