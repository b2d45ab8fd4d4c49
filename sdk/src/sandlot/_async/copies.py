"""Replays COPY and ADD in a sandbox: from the build context, from another sandbox, or out of an archive."""

from __future__ import annotations

import posixpath
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import IO

from sandlot._async.sandbox import AsyncSandbox
from sandlot._dockerfile.context import PIECE, Context, Entry, SourceMissing, inside
from sandlot._dockerfile.copy_plan import KERNEL, Order, Source, Step, is_archive, members, replaced, steps
from sandlot._dockerfile.ignore import has_wildcard, name_matches
from sandlot._tasks_async import each, run_blocking
from sandlot.errors import FileConflict, FileMissing
from sandlot.models import FileInfo

AT_ONCE = 8  # files
LINKS = 100  # of one command, whose arguments have a limit
MAKE_LINKS = (
    'owner=$1; shift; while [ $# -gt 0 ]; do rm -f -- "$2" && ln -s -- "$1" "$2" &&'
    ' { [ "$owner" = 0:0 ] || chown -h "$owner" "$2"; } || exit 1; shift 2; done'
)
SMALL = 4 << 20  # bytes; a file of this size is one request, which can be repeated

Name = str | int | None  # of a user or group; None: the user's own group
Put = Callable[[Step, Name, Name, int], Awaitable[None]]


class AsyncCopier:
    """Copies into one sandbox."""

    def __init__(self, box: AsyncSandbox) -> None:
        self._box = box

    async def from_context(self, order: Order, context: Context) -> None:
        """Copy files of the context. Raises SourceMissing, BadWord, FileError, OSError."""
        found: list[Source] = []
        for source, written in zip(order.sources, order.written, strict=True):
            for one in await run_blocking(lambda: _sources(context, source, written)):  # noqa: B023
                path = context.local(one.entry.path)
                if order.unpacks and one.entry.kind == "file" and is_archive(path):
                    await self._unpack(order, path)
                else:
                    found.append(one)

        async def put(step: Step, user: Name, group: Name, mode: int) -> None:
            path = context.local(step.entry.path)
            if step.entry.size <= SMALL:
                data = await run_blocking(path.read_bytes)
                await self._box.files.write(step.target, data, mode=mode, owner=user, group=group)
                return
            with path.open("rb") as file:
                await self._box.files.write(step.target, _read(file), mode=mode, owner=user, group=group)

        await self._make(order, found, put)
        for name, data in order.texts:
            many = order.into or len(order.texts) + len(found) > 1 or await self._is_dir(order.target)
            target = f"{order.target.rstrip('/')}/{name}" if many else order.target
            if many:
                await self._remove_links({target})
            user, group = _owner(order, None)
            mode = 0o644 if order.mode is None else order.mode
            await self._box.files.write(target, data, mode=mode, owner=user, group=group)

    async def from_sandbox(self, order: Order, other: AsyncSandbox) -> None:
        """Copy files of another sandbox, as streams. Raises SourceMissing, FileError."""
        found: list[Source] = []
        for source, written in zip(order.sources, order.written, strict=True):
            found += await _find(other, source, written)

        async def put(step: Step, user: Name, group: Name, mode: int) -> None:
            pieces = other.files.stream(f"/{step.entry.path}")
            await self._box.files.write(step.target, pieces, mode=mode, owner=user, group=group)

        await self._make(order, found, put)

    async def _make(self, order: Order, sources: Sequence[Source], put: Put) -> None:
        if order.into and sources:  # as Docker, which makes it before it copies, with a mode of its own
            await self._make_plain(order, [order.target])
        plan = steps(order, sources, is_dir=await self._is_dir(order.target))
        await self._remove_links(replaced(order, plan))
        await self._make_directories(order, plan)

        async def one(step: Step) -> None:
            user, group = _owner(order, step.entry)
            await put(step, user, group, step.entry.mode if order.mode is None else order.mode)

        files = [step for step in plan if step.entry.kind == "file"]
        await each(one, files, concurrency=AT_ONCE, return_exceptions=False, progress=None)
        await self._make_links(order, [step for step in plan if step.entry.kind == "symlink"])

    async def _make_directories(self, order: Order, plan: Sequence[Step]) -> None:
        planned = {step.target for step in plan if step.entry.kind == "dir"}
        parents = {posixpath.dirname(step.target) for step in plan}
        # A write makes its parents, too, but with the owner of its file.
        await self._make_plain(order, sorted(parents - planned))
        for step in plan:
            if step.entry.kind != "dir":
                continue
            user, group = _owner(order, step.entry)
            mode = step.entry.mode if order.mode is None else order.mode
            if step.top and await self._is_dir(step.target):
                continue
            await self._box.files.mkdir(step.target, mode=mode, owner=user, group=group)
            if not step.top:  # an existing one gets the mode and the owner, too
                await self._box.files.chmod(step.target, mode=mode, owner=user, group=group)

    async def _remove_links(self, targets: Collection[str]) -> None:
        """Remove those of these paths that are links."""
        for parent in sorted({posixpath.dirname(target) for target in targets}):
            try:
                there = await self._box.files.list(parent)
            except (FileMissing, FileConflict):
                continue
            for info in there:
                path = posixpath.join(parent, info.name)
                if info.type == "symlink" and path in targets:
                    await self._box.files.remove(path, missing_ok=True)

    async def _make_plain(self, order: Order, paths: Sequence[str]) -> None:
        """Make directories that are no sources; existing ones stay as they are."""
        user, group = _owner(order, None)
        for path in paths:
            await self._box.files.mkdir(path, owner=user, group=group)

    async def _make_links(self, order: Order, plan: Sequence[Step]) -> None:
        for user, group in sorted({_owner(order, step.entry) for step in plan}, key=str):
            own = [step for step in plan if _owner(order, step.entry) == (user, group)]
            for begin in range(0, len(own), LINKS):
                words = [
                    word for step in own[begin : begin + LINKS] for word in (step.entry.target, step.target)
                ]
                argv = ["/bin/sh", "-c", MAKE_LINKS, "sh", f"{user}:{'' if group is None else group}", *words]
                result = await self._box.exec(argv, user=0, cwd="/")
                if not result.ok:
                    raise FileConflict(
                        f"cannot make links: {result.stderr.strip()[-300:]}", path=own[begin].target
                    )

    async def _unpack(self, order: Order, path: Path) -> None:
        """Unpack a tar into the target."""
        with tarfile.open(path) as archive:
            found = await run_blocking(lambda: members(archive))
            await self._box.files.mkdir(order.target, owner=0, group=0)
            root = order.target.rstrip("/")
            plan = [(Step(f"{root}/{entry.path}", entry), member) for entry, member in found]
            # As Docker, which replaces a link where the archive has a directory, too.
            await self._remove_links({step.target for step, _ in plan if step.entry.kind != "symlink"})
            await self._make_directories(order, [step for step, _ in plan])
            for step, member in plan:
                if step.entry.kind != "file":
                    continue
                user, group = _owner(order, step.entry)
                mode = step.entry.mode if order.mode is None else order.mode
                file = archive.extractfile(member)  # follows a hard link within the archive
                if file is not None:
                    with file:
                        await self._box.files.write(
                            step.target, _read(file), mode=mode, owner=user, group=group
                        )
            await self._make_links(order, [step for step, _ in plan if step.entry.kind == "symlink"])

    async def _is_dir(self, path: str) -> bool:
        try:
            return (await self._box.files.stat(path)).type == "dir"
        except (FileMissing, FileConflict):
            return False


def _sources(context: Context, source: str, written: str) -> list[Source]:
    """Return what a source of the context names. Raises SourceMissing, OSError."""
    return [
        Source(name, entry, tuple(context.below(entry.path)) if entry.kind == "dir" else ())
        for name, entry in context.find(source, written=written)
    ]


async def _find(box: AsyncSandbox, source: str, written: str) -> list[Source]:
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


def _owner(order: Order, entry: Entry | None) -> tuple[Name, Name]:
    """Return user and group of what is made."""
    if order.user is not None:
        return order.user, order.group
    if entry is not None and entry.owner is not None:
        return entry.owner
    return 0, 0


async def _read(file: IO[bytes]) -> AsyncIterator[bytes]:
    while piece := await run_blocking(lambda: file.read(PIECE)):
        yield piece
