"""The files of this machine that an upload reads and a download makes."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from sandlot.errors import FileConflict
from sandlot.models import FileInfo


def upload_plan(source: Path, path: str) -> list[tuple[Path, str, int | None]]:
    """What an upload makes, in order: (local, target, a directory's mode or None for a file)."""
    if not source.is_dir():
        return [(source, path, None)]
    plan: list[tuple[Path, str, int | None]] = []
    waiting: list[tuple[Path, str, dict[tuple[int, int], Path]]] = [(source, path, {})]
    while waiting:
        here, target, above = waiting.pop()
        about = here.stat()
        me = (about.st_dev, about.st_ino)
        if me in above:  # without an end to it the same files would be sent until their path is too long
            reason = f"this link leads back to {above[me]}, which it is in: remove it, or copy without it"
            raise OSError(errno.ELOOP, reason, str(here))
        plan.append((here, target, about.st_mode & 0o7777))
        inner = {**above, me: here}
        directories: list[tuple[Path, str, dict[tuple[int, int], Path]]] = []
        for local in sorted(here.iterdir()):
            inside = f"{target.rstrip('/')}/{local.name}"
            kind = _followed(local).st_mode
            if stat.S_ISDIR(kind):
                directories.append((local, inside, inner))
            elif stat.S_ISREG(kind):
                plan.append((local, inside, None))
        waiting += reversed(directories)
    return plan


def _followed(path: Path) -> os.stat_result:
    """What a path leads to; of a link to nothing the error says so."""
    try:
        return path.stat()
    except FileNotFoundError:
        if not path.is_symlink():
            raise
        reason = f"this link leads to {os.readlink(path)}, which is not there: make that, or remove the link"
        raise FileNotFoundError(errno.ENOENT, reason, str(path)) from None


def download_target(target: Path, name: str) -> Path:
    """The file a download makes: the target itself, or a new one in it when it is a directory."""
    landing = target / name if target.is_dir() else target
    if landing.is_dir():
        raise FileConflict(f"{landing}: is a directory", path=str(landing))
    return landing


def safe_name(entry: FileInfo) -> str:
    """An entry's name, refused when it could lead out of the directory it is written to."""
    name = entry.name
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise FileConflict(f"{entry.path}: a name that cannot be copied", path=entry.path)
    return name
