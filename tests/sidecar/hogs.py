"""Programs that take memory as fast as the machine gives it, each in another way; none of them ends by itself."""

from __future__ import annotations

# memset of whole areas, with the lock of Python's own released: as fast as C.
_FILL = """
import ctypes, mmap, os, threading, time
held = []
def take(size):
    area = mmap.mmap(-1, size)
    held.append(area)
    ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(area)), 1, size)
def eat(step):
    while True: take(step)
"""
THREADS = f"{_FILL}\nfor _ in range(8): threading.Thread(target=eat, args=(16 << 20,)).start()"
PROCESSES = f"{_FILL}\nfor _ in range(7):\n    if os.fork() == 0: break\neat(16 << 20)"
ONE_AREA = f"{_FILL}\ntake(8 << 30)"
# Up to a share of the limit in peace, so that nobody looks often, then all at once.
SPRINT = f"""{_FILL}
take(int(os.environ["LIMIT"]) * 4 // 5)
time.sleep(0.5)
for _ in range(4): threading.Thread(target=eat, args=(16 << 20,)).start()
"""
# Not the resident memory of any process.
UNLINKED = "import os\nheld = os.memfd_create('held')\nwhile True: os.write(held, bytes(16 << 20))"
FAST = {
    "threads": THREADS,
    "processes": PROCESSES,
    "one area": ONE_AREA,
    "sprint": SPRINT,
    "unlinked": UNLINKED,
}

# Takes a MiB at a time and says how many it has: what it said last could be used.
COUNTS = f"""{_FILL}
number = 0
while True:
    take(1 << 20)
    number += 1
    os.write(1, b"%d\\n" % number)
    time.sleep(0.002)
"""

# Shared memory that its process does not take along: a number of bytes of it.
LEAVES = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
size = int(sys.argv[1])
place = libc.shmat(libc.shmget(0, ctypes.c_size_t(size), 0o1600), None, 0)
ctypes.memset(ctypes.c_void_p(place), 1, ctypes.c_size_t(size))
"""
