# This file is auto-generated from sdk/src/sandlot/_async/files.py by tools/async_to_sync.py: do not change it.
"""The files of one sandbox: read, write, stream, list and copy them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from sandlot._local_files import download_target, safe_name, upload_plan
from sandlot._protocol import checks, documents
from sandlot._protocol.messages import TransportError, with_query
from sandlot._protocol.ranges import range_header, whole_size
from sandlot._protocol.retry import Failure
from sandlot._sync.plane import Plane
from sandlot._tasks_sync import now, run_blocking, sleep
from sandlot.errors import ConnectionFailed, FileMissing
from sandlot.models import FileInfo

PIECE = 1 << 20
ON_BYTES = Callable[[int], None]
PATH = str | os.PathLike[str]  # in the sandbox; a name that is not UTF-8 as os.fsdecode() returns it


class Files:
    """File operations. Relative paths start at the sandbox's working directory; no path leaves its root.

    Failures raise FileMissing, FileDenied, FileConflict, FileTooLarge or DiskFull.
    """

    def __init__(self, *, plane: Plane) -> None:
        self._plane = plane

    def write(
        self,
        path: PATH,
        data: bytes | str | Iterable[bytes],
        *,
        mode: int | None = None,
        user: str | int | None = None,
        group: str | int | None = None,
    ) -> int:
        """Replace the file atomically, make missing parents, return its size. `mode` is a number such as 0o755."""
        path = checks.path(path)
        if isinstance(data, str):
            data = data.encode()
        route = self._write_route(path, mode=mode, user=user, group=group)
        headers = {"Content-Type": "application/octet-stream"}
        if isinstance(data, bytes | bytearray | memoryview):
            answer = self._plane.send(
                "PUT", route, body=bytes(data), headers=headers, timeout=300.0, path=path
            )
            return int(documents.parse(answer.body)["size"])
        checks.instance(data, Iterable, name="data", want="bytes, a string or pieces of bytes")
        stream = data
        body = self._plane.open(
            "PUT", route, headers=headers, source=lambda: stream, safe=False, timeout=300.0, path=path
        )
        try:
            return int(documents.parse(body.read_all(timeout=300.0))["size"])
        finally:
            body.close()

    def read(self, path: PATH, *, offset: int = 0, length: int | None = None) -> bytes:
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
        answer = self._plane.send(
            "GET",
            with_query("/files", {"path": path}),
            headers=headers,
            timeout=300.0,
            path=path,
            accept=(416,),
        )
        if answer.status == 416:
            return b""  # the range begins after the end, or the file is empty
        body = answer.body
        return body[:length] if offset < 0 and length is not None else body

    def read_text(self, path: PATH) -> str:
        """Return the file as UTF-8 text; undecodable bytes become U+FFFD."""
        return (self.read(path)).decode("utf-8", "replace")

    def stream(self, path: PATH, *, offset: int = 0) -> Iterator[bytes]:
        """Yield the file in chunks, resuming after a dropped connection. Raises ConnectionFailed if the file changes."""
        path = checks.path(path)
        checks.whole(offset, name="offset")
        retry = self._plane.client.retry(safe=True)
        version: str | None = None
        while True:
            headers = {"Range": range_header(offset=offset, length=None)} if offset else None
            body = self._plane.open(
                "GET", with_query("/files", {"path": path}), headers=headers, path=path, retry=retry
            )
            seen = f"{body.headers.get('x-sandlot-mtime')}/{whole_size(body.headers)}"
            try:
                if version not in (None, seen):
                    raise ConnectionFailed(f"{path} changed while it was read", sent=True)
                version = seen
                while True:
                    piece = body.read(timeout=60.0)
                    if not piece:
                        return
                    offset += len(piece)
                    retry.progress()
                    yield piece
            except TransportError as error:
                delay = retry.after(Failure(sent=True), now=now())
                if delay is None:
                    raise ConnectionFailed(str(error), sent=True) from error
                sleep(delay)
            finally:
                body.close()

    def stat(self, path: PATH, *, follow: bool = True) -> FileInfo:
        """Return type, size, mode and times of the path. Raises FileMissing."""
        path = checks.path(path)
        query = {"path": path, "follow": 1 if follow else 0}
        return documents.file_info(self._plane.call("GET", "/files/stat", query=query, path=path))

    def exists(self, path: PATH) -> bool:
        """Return whether the path exists."""
        try:
            self.stat(path)
        except FileMissing:
            return False
        return True

    def list(self, path: PATH = ".") -> list[FileInfo]:
        """Return the entries of a directory, sorted by name."""
        path = checks.path(path)
        entries: list[FileInfo] = []
        cursor: str | None = None
        while True:
            query = {"path": path, "cursor": cursor}
            document = self._plane.call("GET", "/files/list", query=query, path=path)
            entries += [documents.file_info(entry) for entry in document.get("entries") or ()]
            cursor = document.get("cursor")
            if not cursor:
                return entries

    def mkdir(
        self,
        path: PATH,
        *,
        mode: int | None = None,
        parents: bool = True,
        user: str | int | None = None,
        group: str | int | None = None,
    ) -> None:
        """Make a directory; `parents` also makes missing parents and accepts an existing directory."""
        path = checks.path(path)
        body: dict[str, object] = {"path": path, "parents": parents}
        optional = {"mode": checks.octal(mode), "user": user, "group": group}
        body.update((key, value) for key, value in optional.items() if value is not None)
        self._plane.call("POST", "/files/mkdir", body=body, path=path)

    def move(self, source: PATH, target: PATH, *, overwrite: bool = True) -> None:
        """Rename a file or directory."""
        source, target = checks.path(source, name="source"), checks.path(target, name="target")
        body = {"source": source, "target": target, "overwrite": overwrite}
        self._plane.call("POST", "/files/move", body=body, path=source, safe=False)

    def chmod(
        self,
        path: PATH,
        *,
        mode: int | None = None,
        user: str | int | None = None,
        group: str | int | None = None,
    ) -> None:
        """Change mode and owner; None leaves a value unchanged."""
        path = checks.path(path)
        body: dict[str, object] = {"path": path}
        if mode is not None:
            body["mode"] = checks.octal(mode)
        if user is not None:
            body["user"] = user
        if group is not None:
            body["group"] = group
        self._plane.call("POST", "/files/chmod", body=body, path=path)

    def remove(self, path: PATH, *, recursive: bool = False, missing_ok: bool = False) -> None:
        """Delete a file or an empty directory; `recursive` also deletes all below it."""
        path = checks.path(path)
        query = {"path": path, "recursive": 1 if recursive else 0}
        try:
            self._plane.call("DELETE", "/files", query=query, path=path, timeout=300.0)
        except FileMissing:
            if not missing_ok:
                raise

    def upload(self, local: str | os.PathLike[str], path: PATH, *, on_bytes: ON_BYTES | None = None) -> int:
        """Copy a local file, or a directory with all below it, into the sandbox; return the bytes sent.

        Modes are kept, except those of existing directories. Links are followed; a dangling link, or one to a
        directory that contains it, raises OSError before anything is sent. Anything that is neither a file nor a
        directory is skipped. `on_bytes` is called with the size of each chunk sent.
        """
        source, place = Path(local), checks.path(path)
        total = 0
        for part, target, mode in run_blocking(lambda: upload_plan(source, place)):
            if mode is not None:
                self.mkdir(target, mode=mode)
            else:
                total += self._upload_file(part, target, on_bytes)
        return total

    def download(self, path: PATH, local: str | os.PathLike[str], *, on_bytes: ON_BYTES | None = None) -> int:
        """Copy a file, or a directory with all below it, to this machine; return the bytes received.

        A file gets its name only when it is complete. Links inside a directory are not copied.
        """
        path = checks.path(path)
        target = Path(local)
        info = self.stat(path)
        if info.type != "dir":
            return self._download_file(path, target, info, on_bytes)
        total = 0
        waiting = [(path, target)]
        while waiting:
            directory, here = waiting.pop()
            here.mkdir(parents=True, exist_ok=True)
            for entry in self.list(directory):
                name = safe_name(entry)
                inside = f"{directory.rstrip('/')}/{name}"
                if entry.type == "dir":
                    waiting.append((inside, here / name))
                elif entry.type == "file":
                    total += self._download_file(inside, here / name, entry, on_bytes)
        return total

    def _write_route(
        self, path: str, *, mode: int | None, user: str | int | None, group: str | int | None
    ) -> str:
        query = {"path": path, "mode": checks.octal(mode), "user": user, "group": group, "parents": 1}
        return with_query("/files", query)

    def _upload_file(self, source: Path, path: str, on_bytes: ON_BYTES | None) -> int:
        about = run_blocking(source.stat)
        route = self._write_route(path, mode=about.st_mode & 0o7777, user=None, group=None)
        headers = {"Content-Type": "application/octet-stream"}
        body = self._plane.open(
            "PUT",
            route,
            headers=headers,
            source=lambda: _pieces(source, about.st_size, on_bytes),
            length=about.st_size,
            timeout=300.0,
            path=path,
        )
        try:
            return int(documents.parse(body.read_all(timeout=300.0))["size"])
        finally:
            body.close()

    def _download_file(self, path: str, target: Path, info: FileInfo, on_bytes: ON_BYTES | None) -> int:
        target = run_blocking(lambda: download_target(target, info.name))
        partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
        size = 0
        try:
            with partial.open("wb") as file:
                for piece in self.stream(path):
                    file.write(piece)
                    size += len(piece)
                    if on_bytes is not None:
                        on_bytes(len(piece))
            if info.mode:
                partial.chmod(int(info.mode, 8) & 0o777)
            partial.replace(target)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        return size


def _pieces(source: Path, size: int, on_bytes: ON_BYTES | None) -> Iterator[bytes]:
    """Yield at most `size` bytes, so that a file that grows during the upload does not break the request."""
    left = size
    with source.open("rb") as file:
        while left:
            piece = run_blocking(lambda: file.read(min(PIECE, left)))  # noqa: B023
            if not piece:
                return
            left -= len(piece)
            yield piece
            if on_bytes is not None:
                on_bytes(len(piece))
