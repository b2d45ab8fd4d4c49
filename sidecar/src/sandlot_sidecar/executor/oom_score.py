"""Sets the oom_score_adj of a runner and its ops, so that the OOM killer picks ops first."""

from __future__ import annotations

import os

# Ops keep their container's score; their runner gets this much less.
OOM_DISTANCE = 100
NEVER = b"-1000"  # exempts a process from the OOM killer


def exchange(proc: int, pid: int, score: bytes) -> bytes | None:
    """Set a process's oom_score_adj; return its former one, or None if this process may not. `proc`: a /proc."""
    try:
        file = os.open(f"{pid}/oom_score_adj", os.O_RDWR | os.O_CLOEXEC, dir_fd=proc)
    except OSError:
        return None
    try:
        former = os.pread(file, 16, 0).strip()
        os.pwrite(file, score, 0)
        return former
    except OSError:
        return None
    finally:
        os.close(file)


class OomScore:
    """The oom_score_adj of this process, which its children inherit."""

    def __init__(self, proc: int) -> None:
        """`proc`: a descriptor of the host's /proc. Raises OSError."""
        self._file = os.open("self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC, dir_fd=proc)
        self._own = os.pread(self._file, 16, 0).strip()
        self._op = b"1000"

    def configure(self, score: int | None, *, kills: bool) -> None:
        """Use this score for ops, if this process may set its own low enough beside it.

        `kills`: whether the kernel has an OOM killer that uses the score.
        """
        if score is None:
            return
        # Without an OOM killer (gVisor), one score for both saves each op two writes.
        own = str(max(-1000, score - OOM_DISTANCE) if kills else score).encode()
        if int(self._own) > int(own):
            try:
                os.pwrite(self._file, own, 0)
            except OSError:
                return
            self._own = own
        self._op = str(score).encode()

    def set_for_op(self) -> None:
        """Set the score of ops, before one is started."""
        if self._op != self._own:
            self._set(self._op)

    def set_for_runner(self) -> None:
        """Set the score of the runner again."""
        if self._op != self._own:
            self._set(self._own)

    def _set(self, score: bytes) -> None:
        try:
            os.pwrite(self._file, score, 0)
        except OSError:
            return
