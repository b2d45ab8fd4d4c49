"""Builds stat documents of a file, and of a directory's entries in pages."""

from __future__ import annotations

import os
import stat

from . import users
from .file_request import path_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEFAULT_LIMIT = 10_000
PAGE = 1 << 20  # bytes of names and link targets after which a page of a listing ends


def document(
    path: str, info: os.stat_result, names: users.Names, *, full: str | None = None
) -> dict[str, Any]:
    """Build the contract's stat document."""
    kind = "other"
    target = None
    if stat.S_ISREG(info.st_mode):
        kind = "file"
    elif stat.S_ISDIR(info.st_mode):
        kind = "dir"
    elif stat.S_ISLNK(info.st_mode):
        kind = "symlink"
        try:
            target = os.readlink(full or path)
        except OSError:
            target = None
    return {
        "path": path,
        "type": kind,
        "size": info.st_size,
        "mode": f"{stat.S_IMODE(info.st_mode):04o}",
        "uid": info.st_uid,
        "gid": info.st_gid,
        "user": names.users.get(info.st_uid),
        "group": names.groups.get(info.st_gid),
        "mtime": info.st_mtime,
        "target": target,
    }


def do_stat(message: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """Stat one file; `follow` (default true) follows a symlink."""
    path = path_of(message)
    info = os.stat(path) if message.get("follow", True) else os.lstat(path)
    return {"stat": document(path, info, users.Names())}, []


def do_list(message: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """List a directory's entries by name; `cursor` is the last name of the previous page."""
    path = path_of(message)
    limit = int(message.get("limit") or DEFAULT_LIMIT)
    cursor = message.get("cursor")
    # Read whole for each page: with disk_space.MAX_FILES files that takes 0.17 s, a page of 10,000 documents 0.27 s
    # (AMD EPYC, 2026-11-25).
    names = os.listdir(path)
    if cursor is not None:
        names = [name for name in names if name > cursor]
    names.sort()
    known = users.Names()
    entries = []
    size = count = 0
    for name in names[:limit]:
        count += 1
        full = f"{path.rstrip('/')}/{name}"
        try:
            entry = document(full, os.lstat(full), known)
        except FileNotFoundError:
            continue
        entries.append(entry)
        size += sum(len(os.fsencode(entry[key] or "")) for key in ("path", "target", "user", "group"))
        if size >= PAGE:  # 10,000 long names and targets would exceed a message's size
            break
    return {"entries": entries, "cursor": names[count - 1] if 0 < count < len(names) else None}, []
