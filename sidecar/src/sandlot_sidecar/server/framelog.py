"""The kept output of one op: frames in memory, then in an unlinked file, readable from any frame's offset."""

from __future__ import annotations

import os
from array import array

from sandlot_contract.frames import HEADER, START, STDERR, STDOUT, frame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MERGE_LIMIT = 32 * 1024
MARK_EVERY = 64 * 1024
PIECE = 64 * 1024  # joined output bytes per piece
TURN = 1024  # frames walked before other tasks get to run


def spill_file(state_dir: str) -> int:
    """Open an unlinked file for output that does not fit into memory."""
    try:
        return os.open(state_dir, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:  # gVisor has no O_TMPFILE
        path = f"{state_dir}/output-{os.urandom(8).hex()}"
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        os.unlink(path)
        return fd


class FrameLog:
    """Appends frames up to a limit of output bytes; output beyond it is counted and dropped.

    `size` is the offset after the last frame. A frame that no reader has seen yet grows instead of getting a successor
    of its kind, so that a program that writes byte by byte does not cost 6 bytes a byte.
    """

    __slots__ = ("_begin", "_file", "_last", "_limit", "_marks", "_memory", "_open_file", "_seen", "_stderr",
                 "_tail", "_unread", "_whole_line", "frames", "kept", "size", "stderr_bytes", "stdout_bytes", "truncated")  # fmt: skip

    def __init__(self, *, limit: int, memory: int, open_file: Callable[[], int]) -> None:
        self._limit = limit
        self._memory = memory
        self._open_file = open_file
        self._file = -1
        self._begin = 0  # everything before this offset is in the file
        self._tail = bytearray()
        self._last = -1  # offset of the last frame while it may still grow
        self._seen = 0  # readers have been given nothing beyond this offset
        self._unread = 0  # the last result of `unread`
        # a frame's offset about every 64 KiB, so that a lookup need not walk all frames
        self._marks = array("Q")
        self._stderr = 0  # bytes of stderr among `kept`
        self.size = 0
        self.frames = 0
        self.kept = 0
        self.stdout_bytes = 0
        self.stderr_bytes = 0
        self.truncated = False
        self._whole_line = True  # stderr is empty or ends with a newline

    def append(self, kind: int, payload: bytes) -> None:
        """Append output (`o`, `e`) within the limit, or a start frame."""
        if kind == STDOUT:
            self.stdout_bytes += len(payload)
        elif kind == STDERR:
            self.stderr_bytes += len(payload)
            self._whole_line = payload.endswith(b"\n")
        if kind != START:
            room = self._limit - self.kept
            if len(payload) > room:
                self.truncated = True
                if room <= 0:
                    return
                payload = payload[:room]
            self.kept += len(payload)
            if kind == STDERR:
                self._stderr += len(payload)
        tail, last = self._tail, self._last - self._begin
        if self._last >= self._seen and last >= 0 and tail[last] == kind:
            length = len(tail) - last - HEADER + len(payload)
            if length <= MERGE_LIMIT:
                tail[last + 1 : last + HEADER] = length.to_bytes(4, "big")
                tail += payload
                self.size += len(payload)
                return
        self._last = self.size
        self.frames += 1
        if not self._marks or self.size - self._marks[-1] >= MARK_EVERY:
            self._marks.append(self.size)
        tail += frame(kind, payload)
        self.size += HEADER + len(payload)
        if len(tail) > self._memory:
            self._spill()

    @property
    def spilled(self) -> int:
        """Bytes in the file."""
        return self._begin if self._file >= 0 else 0

    def say(self, line: bytes) -> None:
        """Append a line of the sidecar's own to stderr, whatever the limit."""
        if not self._whole_line:
            line = b"\n" + line
        self._limit = max(self._limit, self.kept + len(line))
        self.append(STDERR, line)

    def _spill(self) -> None:
        offset = self._begin
        try:
            if self._file < 0:
                self._file = self._open_file()
            with memoryview(self._tail) as view:
                while offset < self.size:
                    offset += os.pwrite(self._file, view[offset - self._begin :], offset)
        except OSError:
            self._limit = self.kept  # the disk is full: keep what is in memory, drop the rest
            self._memory = self.size
            return
        self._tail = bytearray()
        self._begin = offset

    def read(self, offset: int, *, limit: int) -> bytes:
        """Return up to `limit` bytes from an offset on; they no longer change."""
        if offset >= self.size:
            return b""
        self._seen = max(self._seen, min(self.size, offset + limit))
        if offset < self._begin:
            return os.pread(self._file, min(limit, self._begin - offset), offset)
        start = offset - self._begin
        return bytes(self._tail[start : start + limit])

    def unread(self) -> int:
        """Return the offset of the first frame that no reader was given in full."""
        # Start at the last result, so that a client that polls makes us walk no frame twice.
        start = max(self._unread, self._mark_before(self._seen))
        for offset, _, length in self._walk(start, self._seen):
            if offset + HEADER + length > self._seen:
                self._unread = offset
                return offset
        self._unread = self._seen
        return self._seen

    def is_boundary(self, offset: int) -> bool:
        """Return whether a frame begins (or the log ends) at this offset."""
        if not 0 <= offset <= self.size:
            return False
        if offset in (0, self.size):
            return True
        return any(position == offset for position, _, _ in self._walk(self._mark_before(offset), offset + 1))

    def _mark_before(self, offset: int) -> int:
        low, high = 0, len(self._marks)
        while low < high:
            middle = (low + high) // 2
            if self._marks[middle] <= offset:
                low = middle + 1
            else:
                high = middle
        return self._marks[low - 1] if low else 0

    def _walk(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Yield (offset, kind, payload length) of the frames that begin in [start, stop)."""
        position, block, base, length = start, b"", start, 0
        while position < min(stop, self.size):
            if position + HEADER > base + len(block):
                block, base = self._peek(position, HEADER if length > 4096 else MARK_EVERY), position
            at = position - base
            length = int.from_bytes(block[at + 1 : at + HEADER], "big")
            yield position, block[at], length
            position += HEADER + length

    def _peek(self, offset: int, limit: int) -> bytes:
        data = b""
        if offset < self._begin:
            data = os.pread(self._file, min(limit, self._begin - offset), offset)
        if len(data) < limit:
            start = max(offset, self._begin) - self._begin
            data += bytes(self._tail[start : start + limit - len(data)])
        return data

    def output(self, kind: int, *, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Yield the kept bytes of one stream in pieces, from its byte `offset` on.

        Small frames are joined. An empty piece means that many frames were walked and other tasks should run.
        """
        self._last = -1  # a frame that grew between two pieces would shift the frames after it
        position = walked = 0
        left = length
        joined = bytearray()
        block, base = b"", 0
        for begin, found, size in self._walk(0, self.size):
            walked += 1
            if walked % TURN == 0:
                yield b""
            if found != kind:
                continue
            skip = min(size, max(0, offset - position))
            position += size
            take = size - skip if left is None else min(size - skip, left)
            if take > 0:
                start = begin + HEADER + skip
                if not base <= start <= start + take <= base + len(block):
                    block, base = self._peek(start, take if take > 4096 else MARK_EVERY), start
                joined += block[start - base : start - base + take]
                if len(joined) >= PIECE:
                    yield bytes(joined)
                    joined.clear()
                if left is not None:
                    left -= take
            if left == 0:
                break
        if joined:
            yield bytes(joined)

    def kept_bytes(self, kind: int) -> int:
        """Return how many bytes of one stream are kept."""
        return self._stderr if kind == STDERR else self.kept - self._stderr

    def simple_output(self, kind: int) -> bytes:
        """Return the kept bytes of one stream at once; for logs with few frames."""
        if self._begin:
            return b"".join(self.output(kind))
        tail, position = self._tail, 0
        found: list[bytes | bytearray] = []
        while position < len(tail):
            end = position + HEADER + int.from_bytes(tail[position + 1 : position + HEADER], "big")
            if tail[position] == kind:
                found.append(tail[position + HEADER : end])
            position = end
        return b"".join(found)

    def close(self) -> None:
        """Free the memory and close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self._tail = bytearray()
        self._begin = self.size
