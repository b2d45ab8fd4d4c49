"""Local files that an upload reads: which ones, and where each goes."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def upload_plan(source: Path, path: str) -> list[tuple[Path, str, int | None]]:
    """Return the uploads in order: (local path, target path, mode of a directory or None for a file)."""
    if not source.is_dir():
        return [(source, path, None)]
    plan: list[tuple[Path, str, int | None]] = []
    waiting: list[tuple[Path, str, dict[tuple[int, int], Path]]] = [(source, path, {})]
    while waiting:
        here, target, above = waiting.pop()
        about = here.stat()
        me = (about.st_dev, about.st_ino)
        if me in above:  # otherwise the same files would be sent again until their path is too long
            reason = f"this link leads back to {above[me]}, which contains it: remove it, or copy without it"
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
    """Stat a path and follow links; the error names a dangling link's target."""
    try:
        return path.stat()
    except FileNotFoundError:
        if not path.is_symlink():
            raise
        reason = (
            f"this link leads to {os.readlink(path)}, which does not exist: create it, or remove the link"
        )
        raise FileNotFoundError(errno.ENOENT, reason, str(path)) from None
