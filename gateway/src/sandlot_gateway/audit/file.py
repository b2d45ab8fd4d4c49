"""Where audit records are written: a file that may be renamed and is bounded, or stdout. Calls block."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Protocol

_STDOUT = 1
_NEWLINE = ord("\n")


class Sink(Protocol):
    def open(self) -> None:
        """Open, as `write` does by itself, too. Raises OSError."""
        ...

    def write(self, data: memoryview) -> int:
        """Write whole lines, or the rest of them; return how many bytes are done with. Raises OSError."""
        ...

    def close(self) -> None: ...


class Stdout:
    def open(self) -> None:
        os.fstat(_STDOUT)

    def write(self, data: memoryview) -> int:
        return os.write(_STDOUT, data)

    def close(self) -> None:
        pass


class AuditFile:
    """A file that is opened anew when it was renamed or deleted, so that rotation needs no signal.

    At `max_bytes` it is renamed to `NAME.1`, and `NAME.1` to `NAME.2`; `keep` of them stay.
    """

    def __init__(self, path: Path, *, max_bytes: int, keep: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._keep = keep
        self._file: int | None = None
        self._inside = False  # the last byte written is not a line's end

    def open(self) -> None:
        if self._file is None:
            # Without O_NONBLOCK a FIFO that nobody reads would block the gateway's start.
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
            self._file = os.open(self._path, flags, 0o600)
            os.set_blocking(self._file, True)

    def write(self, data: memoryview) -> int:
        if self._file is not None and self._is_elsewhere(self._file):
            self.close()
            if self._inside:
                # The new file must not begin with half a record.
                self._inside = False
                return _end_of_line(data)
        self.open()
        assert self._file is not None
        size = os.fstat(self._file).st_size
        end = _end_of_lines(data, room=self._max_bytes - size)
        if not end and size and not self._inside:
            self._rename()
            self.open()
            end = _end_of_lines(data, room=self._max_bytes)
        done = os.write(self._file, data[: end or _end_of_line(data)])
        self._inside = data[done - 1] != _NEWLINE
        return done

    def close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            os.close(file)

    def _is_elsewhere(self, file: int) -> bool:
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return True
        return not os.path.samestat(there, os.fstat(file))

    def _rename(self) -> None:
        names = [self._path, *(Path(f"{self._path}.{number}") for number in range(1, self._keep + 1))]
        if not self._keep:
            self._path.unlink()
        for older, newer in zip(reversed(names[1:]), reversed(names[:-1]), strict=True):
            with contextlib.suppress(FileNotFoundError):
                newer.replace(older)
        self.close()


def _end_of_lines(data: memoryview, *, room: int) -> int:
    """Return the end of the last line that fits, 0 for none."""
    return len(data) if len(data) <= room else bytes(data[: max(room, 0)]).rfind(b"\n") + 1


def _end_of_line(data: memoryview) -> int:
    return bytes(data).index(b"\n") + 1
