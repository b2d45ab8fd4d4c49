"""The oom_score_adj of a runner and of its ops: whom the kernel kills first when memory is used up."""

from __future__ import annotations

import os

# A container's ops keep its score; it has to be so much above their runner's.
OOM_DISTANCE = 100


class OomScore:
    """That of this process, which what it starts is born with."""

    def __init__(self, proc: int) -> None:
        """`proc`: the machine's, open. Raises OSError."""
        self._file = os.open("self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC, dir_fd=proc)
        self._own = os.pread(self._file, 16, 0).strip()
        self._op = b"1000"

    def take(self, score: int | None, *, kills: bool) -> None:
        """Let ops have this score, where this process may have one that is low enough beside it.

        `kills`: whether the kernel goes by it.
        """
        if score is None:
            return
        # Where nobody is killed by score (gVisor), one for both spares each op two writes.
        own = str(max(-1000, score - OOM_DISTANCE) if kills else score).encode()
        if int(self._own) > int(own):
            try:
                os.pwrite(self._file, own, 0)
            except OSError:
                return
            self._own = own
        self._op = str(score).encode()

    def be_op(self) -> None:
        """Take on that of ops."""
        if self._op != self._own:
            self._set(self._op)

    def be_runner(self) -> None:
        """Take on that of a runner again."""
        if self._op != self._own:
            self._set(self._own)

    def _set(self, score: bytes) -> None:
        try:
            os.pwrite(self._file, score, 0)
        except OSError:
            return
