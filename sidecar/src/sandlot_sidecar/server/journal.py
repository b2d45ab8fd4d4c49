"""Journals begun and ended ops with client-chosen ids, so that a restarted sidecar runs none of them again."""

from __future__ import annotations

import os

from . import log

CURRENT, OLDER = "ops.journal", "ops.journal.old"
ROTATE_AT = 16 * 1024 * 1024


class Journal:
    """An append-only file of `+id` and `-id` lines, without fsync: it must survive this process, not the machine."""

    def __init__(self, state_dir: str) -> None:
        self._path = os.path.join(state_dir, CURRENT)
        self._older = os.path.join(state_dir, OLDER)
        self._running: dict[str, None] = {}
        self._fd = -1
        self._size = 0
        self._is_cut = False  # whether a full disk cut off the last line

    def load(self) -> tuple[list[str], list[str]]:
        """Return (ids whose end is not recorded, ids that ended), oldest first."""
        begun: dict[str, bool] = {}
        for path in (self._older, self._path):
            try:
                with open(path, encoding="ascii", errors="replace") as file:
                    for line in file:
                        if line.endswith("\n") and line[0] in "+-":
                            begun[line[1:-1]] = line[0] == "-"
            except FileNotFoundError:
                continue
        lost = [op_id for op_id, ended in begun.items() if not ended]
        return lost, [op_id for op_id, ended in begun.items() if ended]

    def write(self, mark: str, op_id: str) -> None:
        """Record a begin (`+`) or an end (`-`)."""
        if mark == "+":
            self._running[op_id] = None
        else:
            self._running.pop(op_id, None)
        line = f"{mark}{op_id}\n".encode()
        if self._is_cut:
            line = b"\n" + line
        try:
            if self._fd < 0:
                self._open()
            written = os.write(self._fd, line)
            self._is_cut = written < len(line)
            self._size += written
            if self._size > ROTATE_AT:
                self._rotate()
        except OSError as error:
            log.failure("journal_failed", error)

    def _open(self) -> None:
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._fd).st_size

    def _rotate(self) -> None:
        """Begin a new file with the running ops; drop ids that are two files old."""
        os.rename(self._path, self._older)
        self.close()  # not only the descriptor: if the disk is full, the next write must open a file
        self._open()
        for op_id in self._running:
            self._size += os.write(self._fd, f"+{op_id}\n".encode())

    def clear(self) -> None:
        """Delete the journal after a reset."""
        self._running.clear()
        self.close()
        for path in (self._path, self._older):
            try:
                os.unlink(path)
            except FileNotFoundError:
                continue

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
