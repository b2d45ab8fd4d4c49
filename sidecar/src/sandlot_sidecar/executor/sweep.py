"""Finds an op's descendants without a cgroup: by ancestry, session, process group and an environment variable."""

from __future__ import annotations

import os
import signal
import time


class Sweep:
    """Searches the sandbox's /proc for one op's processes.

    It misses a process that clears its environment, starts a new session and has lost its ancestors.
    """

    def __init__(self, *, mark: str, leader: int) -> None:
        self._mark = f"SANDLOT_OP={mark}".encode()
        self._leader = leader

    def members(self) -> list[int]:
        """Return the pids, as seen in the sandbox, of the op's processes."""
        parents: dict[int, int] = {}
        found: set[int] = set()
        for name in os.listdir("/proc"):
            if not name.isdigit() or name == "1":
                continue
            pid = int(name)
            try:
                with open(f"/proc/{pid}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
                if fields[0] in (b"Z", b"X"):
                    continue
                parents[pid] = int(fields[1])
                if self._leader in (pid, int(fields[2]), int(fields[3])) or self._marked(pid):
                    found.add(pid)
            except (OSError, IndexError):
                continue
        grown = True
        while grown:
            more = {pid for pid, parent in parents.items() if parent in found} - found
            found |= more
            grown = bool(more)
        return sorted(found)

    def _marked(self, pid: int) -> bool:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                return self._mark in file.read(1 << 20).split(b"\0")
        except OSError:
            return False

    def signal(self, number: int) -> int:
        """Send a signal to every member; return how many received it."""
        count = 0
        for pid in self.members():
            try:
                # A /proc/PID directory serves as a pidfd, also from outside the PID namespace.
                fd = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError:
                continue
            try:
                signal.pidfd_send_signal(fd, number)
                count += 1
            except OSError:
                pass
            finally:
                os.close(fd)
        return count

    def kill(self, *, seconds: float = 10.0) -> int:
        """SIGKILL the members until none is left; return the number of kills."""
        killed = 0
        deadline = time.monotonic() + seconds
        pause = 0.001
        while (count := self.signal(signal.SIGKILL)) and time.monotonic() < deadline:
            killed += count
            time.sleep(pause)
            pause = min(pause * 2, 0.02)
        return killed
