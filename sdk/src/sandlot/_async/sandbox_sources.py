"""Finds the files of a sandbox that a source of `COPY --from` names."""

from __future__ import annotations

from sandlot._async.sandbox import AsyncSandbox
from sandlot._dockerfile.context import Entry, SourceMissing, inside
from sandlot._dockerfile.copy_plan import KERNEL, Source
from sandlot._dockerfile.ignore import has_wildcard, name_matches
from sandlot.errors import FileConflict, FileMissing
from sandlot.models import FileInfo


async def find_sources(box: AsyncSandbox, source: str, written: str) -> list[Source]:
    """Return what a source of `COPY --from` names. Raises SourceMissing."""
    found = [""]
    for part in inside(source).split("/"):
        if not has_wildcard(part):
            found = [f"{path}/{part}" if part else path for path in found]
            continue
        following: list[str] = []
        for path in found:
            try:
                names = [info.name for info in await box.files.list(path or "/")]
            except (FileMissing, FileConflict):
                continue
            following += [f"{path}/{name}" for name in names if name_matches(part, name)]
        found = following
    sources: list[Source] = []
    for path in found:
        try:
            info = await box.files.stat(path or "/")
        except FileMissing:
            if has_wildcard(source):
                continue
            raise SourceMissing(f"{written[:200]!r} is not in that stage: correct the path") from None
        entry = _entry(info, path)
        name = path.rpartition("/")[2]
        sources.append(Source(name, entry, await _below(box, path) if entry.kind == "dir" else ()))
    return sources


async def _below(box: AsyncSandbox, path: str) -> tuple[Entry, ...]:
    if path in KERNEL:
        return ()
    found: list[Entry] = []
    for info in await box.files.list(path or "/"):
        inner = f"{path}/{info.name}"
        entry = _entry(info, inner)
        if entry.kind in ("file", "dir", "symlink"):
            found.append(entry)
        if entry.kind == "dir":
            found += await _below(box, inner)
    return tuple(found)


def _entry(info: FileInfo, path: str) -> Entry:
    owner = (info.uid, info.gid)
    return Entry(path.lstrip("/"), info.type, int(info.mode, 8), info.size, info.target or "", owner)
