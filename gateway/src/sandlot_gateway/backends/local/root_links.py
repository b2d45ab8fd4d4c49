"""Follows symbolic links as programs do for which another directory is the root."""

from __future__ import annotations

import os
from pathlib import Path

_MAX_LINKS = 40  # as the kernel's


def resolve_below(root: Path, path: Path) -> Path:
    """Return the file below `root` that `path`, also below it, leads to. Too many links: any of them."""
    done, left = root, list(path.relative_to(root).parts)
    for _ in range(_MAX_LINKS):
        while left and not (done / left[0]).is_symlink():
            done = _enter(root, done, left.pop(0))
        if not left:
            break
        target = Path(os.readlink(done / left.pop(0)))
        if target.is_absolute():
            done, target = root, target.relative_to("/")
        left = [*target.parts, *left]
    return done.joinpath(*left)


def _enter(root: Path, directory: Path, name: str) -> Path:
    if name != "..":
        return directory / name
    return directory.parent if directory != root else root
