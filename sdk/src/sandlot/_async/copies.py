"""Replays COPY and ADD in a sandbox: from the build context, from another sandbox, or out of an archive."""

from __future__ import annotations

import posixpath
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import IO

from sandlot._async.packing import AsyncPacker, Left, Small, read_files
from sandlot._async.sandbox import AsyncSandbox
from sandlot._async.sandbox_sources import find_sources
from sandlot._dockerfile.context import PIECE, Context, Entry
from sandlot._dockerfile.copy_plan import Order, Source, Step, is_archive, members, replaced, steps
from sandlot._tasks_async import each, run_blocking
from sandlot.errors import FileConflict, FileMissing

AT_ONCE = 8  # files
LINKS = 100  # of one command, whose arguments have a limit
MAKE_LINKS = (
    'owner=$1; shift; while [ $# -gt 0 ]; do rm -f -- "$2" && ln -s -- "$1" "$2" &&'
    ' { [ "$owner" = 0:0 ] || chown -h "$owner" "$2"; } || exit 1; shift 2; done'
)
SMALL = 4 << 20  # bytes; a file of this size is one request, which can be repeated

Name = str | int | None  # of a user or group; None: the user's own group
Put = Callable[[Step, Name, Name, int], Awaitable[None]]
Read = Callable[[Sequence[Step]], Awaitable[list[bytes] | None]]


class AsyncCopier:
    """Copies into one sandbox. `left`: returns the seconds that are left for it, or raises."""

    def __init__(self, box: AsyncSandbox, *, left: Left) -> None:
        self._box = box
        self._left = left

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
                await self._box.files.write(
                    step.target, self._pieces(file), mode=mode, owner=user, group=group
                )

        async def read(plan: Sequence[Step]) -> list[bytes]:
            return await run_blocking(lambda: [context.local(step.entry.path).read_bytes() for step in plan])

        await self._make(order, found, put, read)
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
            found += await find_sources(other, source, written)

        async def put(step: Step, user: Name, group: Name, mode: int) -> None:
            pieces = other.files.stream(f"/{step.entry.path}")
            await self._box.files.write(step.target, pieces, mode=mode, owner=user, group=group)

        async def read(plan: Sequence[Step]) -> list[bytes] | None:
            planned = {f"/{step.entry.path}": step.entry.size for step in plan}
            packed = await read_files(other, planned, left=self._left)
            return None if packed is None else [packed[f"/{step.entry.path}"] for step in plan]

        await self._make(order, found, put, read)

    async def _make(self, order: Order, sources: Sequence[Source], put: Put, read: Read) -> None:
        if order.into and sources:  # as Docker, which makes it before it copies, with a mode of its own
            await self._make_plain(order, [order.target])
        plan = steps(order, sources, is_dir=await self._is_dir(order.target))
        targets = replaced(order, plan)
        taken = await self._remove_links(targets)
        await self._make_directories(order, plan)
        files = [step for step in plan if step.entry.kind == "file"]
        await self._make_files(order, files, put, read, alone=taken | {order.target}, at_once=AT_ONCE)
        await self._make_links(order, [step for step in plan if step.entry.kind == "symlink"])

    async def _make_files(
        self,
        order: Order,
        files: Sequence[Step],
        put: Put,
        read: Read,
        *,
        alone: Collection[str],
        at_once: int,
    ) -> None:
        """Make files whose directories exist; those at the targets `alone` in requests of their own."""

        async def one(step: Step) -> None:
            self._left()
            user, group = _owner(order, step.entry)
            await put(step, user, group, step.entry.mode if order.mode is None else order.mode)

        small: list[Small[Step]] = []
        others: list[Step] = []
        for step in files:
            if step.entry.size > SMALL or step.target in alone:
                others.append(step)
                continue
            mode = step.entry.mode if order.mode is None else order.mode
            small.append(Small(step.target, step.entry.size, mode, *_owner(order, step.entry), step))
        others += await AsyncPacker(self._box, read, left=self._left).write(small)
        await each(one, others, concurrency=at_once, return_exceptions=False, progress=None)

    async def _make_directories(self, order: Order, plan: Sequence[Step]) -> None:
        planned = {step.target for step in plan if step.entry.kind == "dir"}
        parents = {posixpath.dirname(step.target) for step in plan}
        # A write makes its parents, too, but with the owner of its file.
        await self._make_plain(order, sorted(parents - planned))

        async def one(step: Step) -> None:
            self._left()
            user, group = _owner(order, step.entry)
            mode = step.entry.mode if order.mode is None else order.mode
            if step.top and await self._is_dir(step.target):
                return
            await self._box.files.mkdir(step.target, mode=mode, owner=user, group=group)
            if not step.top:  # an existing one gets the mode and the owner, too
                await self._box.files.chmod(step.target, mode=mode, owner=user, group=group)

        levels: dict[int, list[Step]] = {}
        for step in plan:
            if step.entry.kind == "dir":
                levels.setdefault(step.target.rstrip("/").count("/"), []).append(step)
        for level in sorted(levels):
            await each(one, levels[level], concurrency=AT_ONCE, return_exceptions=False, progress=None)

    async def _remove_links(self, targets: Collection[str]) -> set[str]:
        """Remove those of these paths that are links; return those that are something else than files."""
        taken: set[str] = set()

        async def one(parent: str) -> None:
            self._left()
            try:
                there = await self._box.files.list(parent)
            except (FileMissing, FileConflict):
                return
            for info in there:
                path = posixpath.join(parent, info.name)
                if path not in targets or info.type == "file":
                    continue
                if info.type == "symlink":
                    await self._box.files.remove(path, missing_ok=True)
                else:
                    taken.add(path)

        parents = sorted({posixpath.dirname(target) for target in targets})
        await each(one, parents, concurrency=AT_ONCE, return_exceptions=False, progress=None)
        return taken

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
            # A tar may have a name several times, as after `tar -r`: the last one counts.
            last = {f"{root}/{entry.path}": (entry, member) for entry, member in found}
            plan = [(Step(target, entry), member) for target, (entry, member) in last.items()]
            # As Docker, which replaces a link where the archive has a directory, too.
            taken = await self._remove_links(
                {step.target for step, _ in plan if step.entry.kind != "symlink"}
            )
            await self._make_directories(order, [step for step, _ in plan])
            of = {id(step): member for step, member in plan}

            async def put(step: Step, user: Name, group: Name, mode: int) -> None:
                file = archive.extractfile(of[id(step)])  # follows a hard link within the archive
                if file is not None:
                    with file:
                        pieces = self._pieces(file)
                        await self._box.files.write(step.target, pieces, mode=mode, owner=user, group=group)

            async def read(plan: Sequence[Step]) -> list[bytes]:
                return await run_blocking(lambda: [_member(archive, of[id(step)]) for step in plan])

            files = [step for step, _ in plan if step.entry.kind == "file"]
            # A hard link has no size of its own, and an archive one position.
            links = {step.target for step, member in plan if member.islnk()}
            await self._make_files(order, files, put, read, alone=taken | links, at_once=1)
            await self._make_links(order, [step for step, _ in plan if step.entry.kind == "symlink"])

    async def _pieces(self, file: IO[bytes]) -> AsyncIterator[bytes]:
        while piece := await run_blocking(lambda: file.read(PIECE)):
            self._left()
            yield piece

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


def _owner(order: Order, entry: Entry | None) -> tuple[Name, Name]:
    """Return user and group of what is made."""
    if order.user is not None:
        return order.user, order.group
    if entry is not None and entry.owner is not None:
        return entry.owner
    return 0, 0


def _member(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    return b"" if file is None else file.read()
