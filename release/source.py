"""Gives the files that a release is built from: those of a commit, copied, so that nothing else gets into it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from images.rootfs import run
from release.errors import ReleaseError


def _git(root: Path, *words: str) -> str:
    return run(["git", "-C", root, *words])


def check_clean(root: Path) -> None:
    """Check that the tree is as committed. Raises ReleaseError."""
    changed = [line[3:] for line in _git(root, "status", "--porcelain").splitlines()]
    if changed:
        shown = ", ".join(changed[:5]) + (f" and {len(changed) - 5} others" if len(changed) > 5 else "")
        raise ReleaseError(
            f"the tree differs from its commit: {shown}; commit that, or make a trial with DIRTY=1"
        )


def epoch(root: Path) -> int:
    """Return the time that the artifacts carry: SOURCE_DATE_EPOCH, else the commit's."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    return int(given or _git(root, "log", "-1", "--format=%ct"))


def copy(root: Path, out: Path, *, names: Sequence[str], epoch: int) -> None:
    """Copy these files and directories without what git ignores, with one time and without this user's modes."""
    listed = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *names)
    for name in filter(None, listed.split("\0")):
        source, target = root / name, out / name
        if not source.is_file():  # deleted, and not committed yet
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        target.chmod(0o755 if os.access(source, os.X_OK) else 0o644)
        os.utime(target, (epoch, epoch))
