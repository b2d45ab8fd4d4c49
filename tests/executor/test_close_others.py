"""A runner closes what it inherits, also on a kernel that cannot close a range of descriptors."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.root

# Keeps the standard three, /proc, and every other one of ten; prints what is open then.
CLOSES = """
import errno, json, os, struct, sys
from types import SimpleNamespace
from sandlot_sidecar.executor import runner_factory, syscalls

if sys.argv[1] == "refused":
    code = struct.Struct("<HBBI")
    syscalls.set_filter(
        code.pack(0x20, 0, 0, 0) + code.pack(0x15, 0, 1, 436)
        + code.pack(0x06, 0, 0, 0x50000 | errno.ENOSYS) + code.pack(0x06, 0, 0, 0x7FFF0000)
    )
opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(10)]
proc = os.open("/proc", os.O_PATH)
kept = {0, 1, 2, proc, *opened[::2]}
runner_factory.close_others(SimpleNamespace(proc=proc), kept | {-1})
still = set()
for fd in range(proc + 10):
    try:
        os.fstat(fd)
        still.add(fd)
    except OSError:
        pass
print(json.dumps([sorted(kept), sorted(still)]))
"""


@pytest.mark.parametrize("kernel", ["allowed", "refused"])
def test_only_what_a_runner_needs_stays_open(kernel: str) -> None:
    done = subprocess.run([sys.executable, "-c", CLOSES, kernel], capture_output=True, text=True, check=True)
    kept, still = json.loads(done.stdout)
    assert still == kept
