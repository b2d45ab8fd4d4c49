"""The files of one sandbox: read, write, stream, list and copy them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, AsyncIterator, Callable
from pathlib import Path

from sandlot._async.plane import AsyncPlane
from sandlot._async.transfers import AsyncTransfer
from sandlot._async.watch import AsyncFileWatch
from sandlot._protocol import checks, documents
from sandlot._protocol.file_requests import USER, given, write_route
from sandlot._protocol.messages import TransportError, with_query
from sandlot._protocol.ranges import range_header, whole_size
from sandlot._protocol.retry import Failure
from sandlot._tasks_async import now, sleep
from sandlot.errors import ConnectionFailed, FileMissing
from sandlot.file_records import TransferMeter, TransferProgress
from sandlot.models import FileInfo

ON_BYTES = Callable[[int], None]
ON_PROGRESS = Callable[[TransferProgress], None]
PATH = str | os.PathLike[str]  # a name that is not UTF-8 as os.fsdecode() returns it


class AsyncFiles:
    """File operations. Relative paths start at the sandbox's working directory; no path leaves its root.

    `user` is whom a call acts as, as of a command: the kernel checks that user's permissions, and new files belong to
    it. None acts as root, and new files belong to the image's user. Failures raise a subclass of FileError.
    """

    def __init__(self, *, plane: AsyncPlane) -> None:
        self._plane = plane

    async def write(
        self,
        path: PATH,
        data: bytes | str | AsyncIterable[bytes],
        *,
        mode: int | None = None,
        user: USER = None,
        owner: USER = None,
        group: USER = None,
    ) -> int:
        """Replace the file atomically, make missing parents, return its size. `mode` is a number such as 0o755.

        A `user` must be able to write the directory and a file that exists. Only root gives files to an `owner`.
        """
        path = checks.path(path)
        if isinstance(data, str):
            data = data.encode()
        route = write_route(path, mode=mode, user=user, owner=owner, group=group)
        headers = {"Content-Type": "application/octet-stream"}
        if isinstance(data, bytes | bytearray | memoryview):
            answer = await self._plane.send(
                "PUT", route, body=bytes(data), headers=headers, timeout=300.0, path=path
            )
            return int(documents.parse(answer.body)["size"])
        checks.instance(data, AsyncIterable, name="data", want="bytes, a string or pieces of bytes")
        stream = data
        body = await self._plane.open(
            "PUT", route, headers=headers, source=lambda: stream, safe=False, timeout=300.0, path=path
        )
        try:
            return int(documents.parse(await body.read_all(timeout=300.0))["size"])
        finally:
            await body.aclose()

    async def read(
        self, path: PATH, *, offset: int = 0, length: int | None = None, user: USER = None
    ) -> bytes:
        """Return the file's bytes, or a range of them; a negative offset counts from the end."""
        path = checks.path(path)
        checks.whole(offset, name="offset", least=-checks.MOST)
        if length is not None:
            checks.whole(length, name="length")
        if length == 0:
            return b""
        headers = (
            {"Range": range_header(offset=offset, length=length)} if offset or length is not None else None
        )
        answer = await self._plane.send(
            "GET",
            with_query("/files", {"path": path, "user": user}),
            headers=headers,
            timeout=300.0,
            path=path,
            accept=(416,),
        )
        if answer.status == 416:
            return b""  # the range begins after the end, or the file is empty
        body = answer.body
        return body[:length] if offset < 0 and length is not None else body

    async def read_text(self, path: PATH, *, user: USER = None) -> str:
        """Return the file as UTF-8 text; undecodable bytes become U+FFFD."""
        return (await self.read(path, user=user)).decode("utf-8", "replace")

    async def stream(self, path: PATH, *, offset: int = 0, user: USER = None) -> AsyncIterator[bytes]:
        """Yield the file in chunks, resuming after a dropped connection. Raises ConnectionFailed if the file changes."""
        path = checks.path(path)
        checks.whole(offset, name="offset")
        retry = self._plane.client.retry(safe=True)
        version: str | None = None
        while True:
            headers = {"Range": range_header(offset=offset, length=None)} if offset else None
            route = with_query("/files", {"path": path, "user": user})
            body = await self._plane.open("GET", route, headers=headers, path=path, retry=retry)
            seen = f"{body.headers.get('x-sandlot-mtime')}/{whole_size(body.headers)}"
            try:
                if version not in (None, seen):
                    raise ConnectionFailed(f"{path} changed while it was read", sent=True)
                version = seen
                while True:
                    piece = await body.read(timeout=60.0)
                    if not piece:
                        return
                    offset += len(piece)
                    retry.progress()
                    yield piece
            except TransportError as error:
                delay = retry.after(Failure(sent=True), now=now())
                if delay is None:
                    raise ConnectionFailed(str(error), sent=True) from error
                await sleep(delay)
            finally:
                await body.aclose()

    async def stat(self, path: PATH, *, follow: bool = True, user: USER = None) -> FileInfo:
        """Return type, size, mode and times of the path. Raises FileMissing."""
        path = checks.path(path)
        query = {"path": path, "follow": 1 if follow else 0, "user": user}
        return documents.file_info(await self._plane.call("GET", "/files/stat", query=query, path=path))

    async def exists(self, path: PATH, *, user: USER = None) -> bool:
        """Return whether the path exists."""
        try:
            await self.stat(path, user=user)
        except FileMissing:
            return False
        return True

    async def list(self, path: PATH = ".", *, user: USER = None) -> list[FileInfo]:
        """Return the entries of a directory, sorted by name."""
        path = checks.path(path)
        entries: list[FileInfo] = []
        cursor: str | None = None
        while True:
            query = {"path": path, "cursor": cursor, "user": user}
            document = await self._plane.call("GET", "/files/list", query=query, path=path)
            entries += [documents.file_info(entry) for entry in document.get("entries") or ()]
            cursor = document.get("cursor")
            if not cursor:
                return entries

    async def mkdir(
        self,
        path: PATH,
        *,
        mode: int | None = None,
        parents: bool = True,
        user: USER = None,
        owner: USER = None,
        group: USER = None,
    ) -> None:
        """Make a directory; `parents` also makes missing parents and accepts an existing directory."""
        path = checks.path(path)
        body = given(path=path, parents=parents, mode=checks.octal(mode), user=user, owner=owner, group=group)
        await self._plane.call("POST", "/files/mkdir", body=body, path=path)

    async def move(self, source: PATH, target: PATH, *, overwrite: bool = True, user: USER = None) -> None:
        """Rename a file or directory."""
        source, target = checks.path(source, name="source"), checks.path(target, name="target")
        body = given(source=source, target=target, overwrite=overwrite, user=user)
        await self._plane.call("POST", "/files/move", body=body, path=source, safe=False)

    async def chmod(
        self,
        path: PATH,
        *,
        mode: int | None = None,
        owner: USER = None,
        group: USER = None,
        user: USER = None,
    ) -> None:
        """Change mode and owner; None leaves a value unchanged."""
        path = checks.path(path)
        body = given(path=path, mode=checks.octal(mode), owner=owner, group=group, user=user)
        await self._plane.call("POST", "/files/chmod", body=body, path=path)

    async def remove(
        self, path: PATH, *, recursive: bool = False, missing_ok: bool = False, user: USER = None
    ) -> None:
        """Delete a file or an empty directory; `recursive` also deletes all below it."""
        path = checks.path(path)
        query = {"path": path, "recursive": 1 if recursive else 0, "user": user}
        try:
            await self._plane.call("DELETE", "/files", query=query, path=path, timeout=300.0)
        except FileMissing:
            if not missing_ok:
                raise

    def watch(self, path: PATH, *, recursive: bool = False, user: USER = None) -> AsyncFileWatch:
        """Return the events of a directory, and with `recursive` of all below it, from when it is entered or iterated.

            async with box.files.watch("/app", recursive=True) as events:
                async for event in events:
                    print(event.kind, event.path)

        After a lost connection it continues with an event of the kind `overflow`. Raises SandboxLost when the sandbox
        ends, and FileMissing when the directory has gone.
        """
        checks.instance(recursive, bool, name="recursive", want="True or False")
        return AsyncFileWatch(plane=self._plane, path=checks.path(path), recursive=recursive, user=user)

    async def upload(
        self,
        local: PATH,
        path: PATH,
        *,
        on_bytes: ON_BYTES | None = None,
        progress: ON_PROGRESS | None = None,
        user: USER = None,
    ) -> int:
        """Copy a local file, or a directory with all below it, into the sandbox; return the bytes sent.

        Modes are kept, except those of existing directories. Links are followed; a dangling link, or one to a
        directory that contains it, raises OSError before anything is sent. Anything that is neither a file nor a
        directory is skipped. Eight files are sent at once. `on_bytes` is called with the size of each chunk sent,
        `progress` with all so far: one call at a time, with `Sandbox` in other threads.
        """
        meter = TransferMeter(on_bytes=on_bytes, progress=progress)
        return await AsyncTransfer(self, plane=self._plane, meter=meter, user=user).upload(
            Path(local), checks.path(path)
        )

    async def download(
        self,
        path: PATH,
        local: PATH,
        *,
        on_bytes: ON_BYTES | None = None,
        progress: ON_PROGRESS | None = None,
        user: USER = None,
    ) -> int:
        """Copy a file, or a directory with all below it, to this machine; return the bytes received.

        A file goes into `local` if that is a directory; a directory's entries do. A file gets its name only when it is
        complete. Links inside a directory are not copied, since code of the sandbox chooses where they lead, nor are
        entries that are gone when their turn comes. Modes are kept, except set-id bits and those of existing
        directories. Raises FileConflict for a link of this machine below `local`, for a file over a directory or the
        other way round, and for two names that are one here. Eight files are received at once. `on_bytes` is called with
        the size of each chunk received, `progress` with all so far, as of `upload`; the total is that of the files when
        they are listed.
        """
        meter = TransferMeter(on_bytes=on_bytes, progress=progress)
        return await AsyncTransfer(self, plane=self._plane, meter=meter, user=user).download(
            checks.path(path), Path(local)
        )
