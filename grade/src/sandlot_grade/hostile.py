"""Function bodies that attack their machine instead of solving the problem."""

from __future__ import annotations

ENDLESS_LOOP = """
    while True:
        pass
"""

# Touches every page, so that the memory is used.
EATS_MEMORY = """
    kept = []
    while True:
        kept.append(bytearray(b"x") * (16 << 20))
"""

WRITES_100_MB = """
    import os
    block = b"x" * (1 << 20)
    for _ in range(100):
        view = memoryview(block)
        while view:
            view = view[os.write(1, view):]
    os._exit(0)
"""

# First what `kill -9 -1` reaches, then every process by number, including its parent and init.
KILLS_ALL = """
    import os, signal
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(-1, number)
        except OSError:
            pass
    for _ in range(3):
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                try:
                    os.kill(int(name), signal.SIGKILL)
                except OSError:
                    pass
        for number in range(1, 4096):
            if number != os.getpid():
                try:
                    os.kill(number, signal.SIGKILL)
                except OSError:
                    pass
    os.kill(os.getpid(), signal.SIGKILL)
"""

# Doubles up to the limit and stays there, so that the first process fails permanently.
FORK_BOMB = """
    import os, signal
    first = os.getpid()
    while True:
        try:
            os.fork()
        except OSError:
            if os.getpid() == first:
                raise
            signal.pause()
"""

FILLS_DISK = """
    import os
    block = b"x" * (1 << 20)
    with open("/var/tmp/filler", "wb", buffering=0) as stream:
        while True:
            stream.write(block)
"""
