"""Exports a directory again and again, and swaps what is in it at each system call: all moments that code could choose.

`python -m tests.sidecar.swapped_exports DIRECTORY` prints how many exports it has restored.
"""

from __future__ import annotations

import io
import os
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from sandlot_sidecar.layer.attributes import measure
from sandlot_sidecar.layer.export import Exporter
from sandlot_sidecar.layer.restore import Restorer
from sandlot_sidecar.layer.selection import EVERYTHING

CALLS = ("open", "os.listdir", "os.listxattr")  # of which Python tells before it makes them
LASTS = 2  # a swap ends so many calls later, at most
_swap: Callable[[], None] | None = None
_calls = 0
_at: tuple[int, int] = (0, 0)


def _hook(event: str, _: tuple[object, ...]) -> None:
    global _calls, _swap
    if _swap is None or event not in CALLS:
        return
    _calls += 1
    if _calls in _at:
        swap, _swap = _swap, None
        swap()
        _swap = swap


def _exchange(place: Path, other: Path) -> Callable[[], None]:
    """Give two names to each other's files, one of which may be missing."""

    def swap() -> None:
        away = place.with_name("away")
        for old, new in ((place, away), (other, place), (away, other)):
            if os.path.lexists(old):
                old.rename(new)

    return swap


def _remove(place: Path) -> Callable[[], None]:
    return lambda: place.rmdir() if place.is_dir() else place.mkdir()


def _swaps(top: Path) -> list[tuple[str | None, Callable[[], None]]]:
    """Return each with the name that is there at any moment, whatever has it."""
    for place in (top / "d" / "below", top / "d"):
        place.mkdir(parents=True, exist_ok=True)
        (place / "file").write_text("text")
        (place / "hard").hardlink_to(place / "file")
    others = top.with_name("others")
    (others / "directory").mkdir(parents=True)
    (others / "directory" / "first").hardlink_to(top / "d" / "file")
    (others / "link").symlink_to("/etc")
    (others / "file").write_text("file")
    os.mkfifo(others / "pipe")
    found = [
        (None if kind == "nothing" else str(place.relative_to(top)), _exchange(place, others / kind))
        for place in (top / "d", top / "d" / "below")
        for kind in ("directory", "link", "file", "pipe", "nothing")
    ]
    (top / "empty").mkdir()
    return [*found, (None, _remove(top / "empty"))]


def _restored(archive: bytes, *, must_have: str | None) -> None:
    with tarfile.open(fileobj=io.BytesIO(archive)) as found:
        names = found.getnames()
    assert not any("passwd" in name for name in names), "an export followed a link"
    assert must_have is None or must_have in names, "what was replaced is missing"
    with tempfile.TemporaryDirectory() as place:
        fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
        Restorer(fd, max_bytes=None).run(io.BytesIO(archive))
        os.close(fd)


def main(directory: str) -> None:
    global _calls, _swap, _at
    sys.addaudithook(_hook)
    top = Path(directory, "top")
    swaps = _swaps(top)
    fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    done = 0
    for name, swap in swaps:
        first = 0
        while first <= _calls:  # of the export before
            first += 1
            for last in range(first + 1, first + 1 + LASTS):
                _at, _calls, _swap = (first, last), 0, swap
                measure([fd], EVERYTHING)
                out = io.BytesIO()
                Exporter(out, max_bytes=None).run([fd])
                _swap = None
                if first <= _calls < last:
                    swap()  # back
                _restored(out.getvalue(), must_have=name)
                done += 1
        _calls = 0
    print(done)


if __name__ == "__main__":
    main(sys.argv[1])
