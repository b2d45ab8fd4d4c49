"""Deletes the sandboxes of a process that died without deleting them: a process of its own, which reads their ids.

It ends with the end of its input, which comes when the process that wrote there has ended, in whatever way.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import suppress

from sandlot._sync.sandbox import Sandbox
from sandlot.errors import SandlotError

_lock = threading.Lock()
_watcher: subprocess.Popen[str] | None = None


def watch(sandbox_id: str) -> None:
    """Have this sandbox deleted when this process has ended, unless `release` comes before."""
    global _watcher
    with _lock:
        if _watcher is None or _watcher.poll() is not None:
            _watcher = _start()
        _tell(_watcher, f"+{sandbox_id}")


def release(sandbox_id: str) -> None:
    """Leave this sandbox alone: it is deleted."""
    with _lock:
        if _watcher is not None:
            _tell(_watcher, f"-{sandbox_id}")


def _start() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", __name__],  # -P: no module of the directory in which an agent works
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,  # else it ends by the signals that end this process
    )


def _tell(watcher: subprocess.Popen[str], line: str) -> None:
    assert watcher.stdin is not None
    with suppress(BrokenPipeError):  # it was killed; sandboxes have timeouts
        print(line, file=watcher.stdin, flush=True)


def main() -> None:
    """Read ids until the input ends; delete the sandboxes that were not released."""
    left: set[str] = set()
    for line in sys.stdin:
        sign, sandbox_id = line[0], line[1:].strip()
        left = left | {sandbox_id} if sign == "+" else left - {sandbox_id}
    for sandbox_id in left:
        with suppress(SandlotError):  # it has ended already, or its timeout will end it
            Sandbox.connect(sandbox_id).delete()


if __name__ == "__main__":
    main()
