"""The RPCs of filesystem.Filesystem, each as requests to the sandbox's sidecar."""

from __future__ import annotations

import posixpath
import stat
from datetime import UTC, datetime
from typing import Any

from . import messages
from .failures import EnvdFailure, invalid
from .messages import read
from .sidecar_call import SidecarCall

_TYPES = {"file": "FILE_TYPE_FILE", "dir": "FILE_TYPE_DIRECTORY", "symlink": "FILE_TYPE_SYMLINK"}
_UNKNOWN = "FILE_TYPE_UNSPECIFIED"
_MOST = 10_000  # entries of one listing, whatever its depth
_DEEPEST = 64
_FIRST, _LAST = -62_135_596_800, 253_402_300_799  # Unix seconds of the years 1 and 9999


async def stat_(call: SidecarCall, body: bytes) -> dict[str, Any]:
    return {"entry": await entry_at(call, read(body, messages.Path).path)}


async def make_dir(call: SidecarCall, body: bytes) -> dict[str, Any]:
    """Make a directory and its parents; one that exists is `already_exists`."""
    path = read(body, messages.Path).path
    try:
        found = await _stat(call, path)
    except EnvdFailure as failure:
        if failure.code != "not_found":
            raise
    else:
        if found["type"] == "dir":
            raise EnvdFailure("already_exists", f"path: the directory {path!r} exists already")
        raise invalid("path", f"{path!r} exists and is no directory")
    await call.json("POST", "/v1/files/mkdir", json=call.file_body(path=path, parents=True))
    return {"entry": await entry_at(call, path)}


async def move(call: SidecarCall, body: bytes) -> dict[str, Any]:
    """Rename, over what is there; the directory to move to is made if it is missing."""
    asked = read(body, messages.Move)
    await _stat(call, asked.source, follow=False)
    parent = posixpath.dirname(asked.destination.rstrip("/"))
    if parent not in ("", "/"):
        await call.json("POST", "/v1/files/mkdir", json=call.file_body(path=parent, parents=True))
    await call.json(
        "POST",
        "/v1/files/move",
        json=call.file_body(source=asked.source, target=asked.destination, overwrite=True),
    )
    return {"entry": await entry_at(call, asked.destination)}


async def remove(call: SidecarCall, body: bytes) -> dict[str, Any]:
    """Remove a file, or a directory with all that is in it; one that is missing is removed already."""
    path = read(body, messages.Path).path
    answer = await call.fetch("DELETE", f"/v1/files?{call.file_query(path=path, recursive=1)}")
    if answer.status not in (200, 204, 404):
        raise call.refused(answer.status, answer.body)
    return {}


async def list_dir(call: SidecarCall, body: bytes) -> dict[str, Any]:
    """List a directory, with what is below it down to `depth` levels."""
    asked = read(body, messages.Path)
    depth = asked.depth or 1
    if not 1 <= depth <= _DEEPEST:
        raise invalid("depth", f"must be from 1 to {_DEEPEST}")
    found = await entries_below(call, asked.path, depth=depth, most=_MOST)
    return {"entries": [await _entry(call, each) for each in found]}


async def entries_below(
    call: SidecarCall, path: str, *, depth: int, most: int, most_directories: int | None = None
) -> list[dict[str, Any]]:
    """Return the sidecar's entries of a directory and `depth` - 1 levels below it. Raises EnvdFailure."""
    if (await _stat(call, path))["type"] != "dir":
        raise invalid("path", f"{path!r} is no directory")
    entries: list[dict[str, Any]] = []
    waiting, directories = [(path, 1)], 0
    while waiting:
        above, level = waiting.pop()
        directories += 1
        if most_directories is not None and directories > most_directories:
            text = f"path: {path!r} has more than {most_directories} directories"
            raise EnvdFailure("resource_exhausted", text)
        try:
            listed = await _listed(call, above, most=most - len(entries))
        except EnvdFailure:
            if level == 1:
                raise
            continue  # it was removed meanwhile, or its name is not UTF-8
        entries += listed
        if len(entries) > most:
            raise EnvdFailure("resource_exhausted", f"path: {path!r} has more than {most} entries")
        if level < depth:
            waiting += [(each["path"], level + 1) for each in reversed(listed) if each["type"] == "dir"]
    return entries


async def entry_at(call: SidecarCall, path: str) -> dict[str, Any]:
    """Return the entry of a path. Raises EnvdFailure."""
    return await _entry(call, await _stat(call, path, follow=False))


async def _stat(call: SidecarCall, path: str, *, follow: bool = True) -> dict[str, Any]:
    if not path:
        raise invalid("path", "is required")
    return await call.json("GET", f"/v1/files/stat?{call.file_query(path=path, follow=int(follow))}")


async def _listed(call: SidecarCall, path: str, *, most: int) -> list[dict[str, Any]]:
    """Return a directory's entries, and not all of those after `most`."""
    found: list[dict[str, Any]] = []
    cursor: str | None = ""
    while cursor is not None and len(found) <= most:
        asked = call.file_query(path=path, **({"cursor": cursor} if cursor else {}))
        page = await call.json("GET", f"/v1/files/list?{asked}")
        found += page["entries"]
        cursor = page["cursor"]
    return found


async def _entry(call: SidecarCall, found: dict[str, Any]) -> dict[str, Any]:
    """Return EntryInfo. A link has the type of what it leads to, if there is something, and says where."""
    kind, mode = found["type"], int(found["mode"], 8)
    entry: dict[str, Any] = {
        "name": posixpath.basename(found["path"]) or "/",
        "type": _TYPES.get(kind, _UNKNOWN),
        "path": found["path"],
        "size": str(found["size"]),
        "mode": mode,
        "permissions": stat.filemode(mode | _bits(kind)),
        "owner": found.get("user") or str(found["uid"]),
        "group": found.get("group") or str(found["gid"]),
        "modifiedTime": _time(found["mtime"]),
    }
    if kind == "symlink":
        entry["symlinkTarget"] = found.get("target") or ""
        try:
            entry["type"] = _TYPES.get((await _stat(call, found["path"]))["type"], _UNKNOWN)
        except EnvdFailure:
            pass  # it leads nowhere
    return entry


def _time(seconds: float) -> str:
    """Return a time that the form can have, whatever user code has set."""
    seconds = min(max(seconds, _FIRST), _LAST)
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _bits(kind: str) -> int:
    return {"dir": stat.S_IFDIR, "symlink": stat.S_IFLNK}.get(kind, stat.S_IFREG)
