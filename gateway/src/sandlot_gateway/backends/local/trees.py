"""Removes directory trees with untrusted content: odd modes, great depth, and mounts not to be crossed."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

_MNT_DETACH = 2
_UMOUNT_NOFOLLOW = 8


def remove_tree(path: str | Path) -> None:
    """Remove a tree if it exists, without following symlinks. Raises OSError."""
    try:
        shutil.rmtree(path, onerror=_make_writable)
    except FileNotFoundError:
        return
    except (RecursionError, OSError):
        # Too deep for Python's recursion or for one path name; rm descends by descriptors.
        done = subprocess.run(
            ["rm", "-rf", "--one-file-system", "--", os.fspath(path)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise OSError(f"cannot remove {path}: {done.stderr.strip()[-200:]}") from None


def _make_writable(function: Callable[..., Any], path: str, info: tuple[Any, BaseException, Any]) -> None:
    error = info[1]
    if isinstance(error, FileNotFoundError):
        return
    if not isinstance(error, PermissionError):
        raise error
    # Overlay's work directory has mode 000, which an ordinary user cannot enter.
    os.chmod(os.path.dirname(path), 0o700)
    if os.path.isdir(path) and not os.path.islink(path):
        os.chmod(path, 0o700)
        shutil.rmtree(path)
    else:
        os.unlink(path)


def mounts_below(path: Path) -> list[str]:
    """Return the mount points at or below a path in this mount namespace, deepest first."""
    prefix = os.fspath(path)
    points = [
        line.split()[4].encode().decode("unicode_escape")
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
    ]
    found = [point for point in points if point == prefix or point.startswith(prefix + "/")]
    return sorted(found, key=len, reverse=True)


def unmount_below(path: Path) -> list[str]:
    """Detach every mount at or below a path, so that removing the tree spares what was mounted there.

    Return the mount points. Raises OSError if one cannot be detached.
    """
    points = mounts_below(path)
    libc = ctypes.CDLL(None, use_errno=True) if points else None
    for point in points:
        if libc is not None and libc.umount2(os.fsencode(point), _MNT_DETACH | _UMOUNT_NOFOLLOW) != 0:
            code = ctypes.get_errno()
            raise OSError(code, f"cannot unmount {point}: {os.strerror(code)}")
    return points
