"""HTTP routes for files: the executor resolves paths, and bytes flow between its descriptors and the connection."""

from __future__ import annotations

import json
import os
import time

from ..core.errors import ApiError, bad_input
from . import fields, file_query
from .file_send import MAX_READ, read_window, send_file
from .file_write import FileWriter, given
from .http import Route
from .multipart import BEGIN, DATA, FINISH, Multipart, boundary_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from typing import Any

    from .http import Http
    from .instance import Instance
    from .request import Request

    Work = Callable[[Request], Coroutine[Any, Any, None]]

MAX_LIST = 10000


class FileRoutes:
    """Handlers for the files of one instance."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._writer = FileWriter(instance)

    def add_to(self, http: Http) -> None:
        """Register the routes."""
        http.add("PUT", "/v1/files", Route(self._active(self.put), streams=True))
        http.add("GET", "/v1/files", Route(self._active(self.get)))
        http.add("DELETE", "/v1/files", Route(self._active(self.delete)))
        http.add("POST", "/v1/upload", Route(self._active(_said_once(self.upload)), streams=True))
        http.add("GET", "/v1/download", Route(self._active(_said_once(self.get))))
        http.add("GET", "/v1/read-file", Route(self._active(_said_once(self.read_file))))
        http.add("GET", "/v1/files/stat", Route(self._active(self.stat)))
        http.add("GET", "/v1/files/list", Route(self._active(self.list)))
        http.add("POST", "/v1/files/mkdir", Route(self._active(self.mkdir)))
        http.add("POST", "/v1/files/move", Route(self._active(self.move)))
        http.add("POST", "/v1/files/chmod", Route(self._active(self.chmod)))

    def _active(self, work: Work) -> Work:
        """Wrap a handler so that the sandbox is not idle while it runs."""

        async def counted(request: Request) -> None:
            instance = self._instance
            instance.use.stream_begins()
            try:
                await work(request)
            finally:
                instance.use.stream_ends()

        return counted

    def _path(self, value: str | None, name: str = "path") -> str:
        return file_query.path(value, name, workdir=self._instance.ops.workdir)

    async def _ask(self, op: str, **arguments: Any) -> dict[str, Any]:
        answer, _ = await self._instance.executor.ask("file", op=op, **arguments)
        return _document(answer)

    # -- whole files -----------------------------------------------------------------------------------------

    async def put(self, request: Request) -> None:
        """Write the request's body to a file."""
        query = request.query()
        path = self._path(query.get("path"))
        options = {"mode": _mode(query.get("mode")), **_owner(dict(query)), **file_query.acting(dict(query))}
        parents = fields.query_flag(query, "parents", default=True)
        size = await self._writer.write(path, _body(request), parents=parents, **options)
        request.respond_json({"path": path, "size": size})

    async def upload(self, request: Request) -> None:
        """Write a file as Prime's clients send it: the part `file` of a multipart body."""
        path = self._path(request.query().get("path"))
        parts = _file_part(_body(request), boundary_of(request.header(b"content-type")))
        size = await self._writer.write(path, parts, parents=True, **file_query.acting(dict(request.query())))
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        request.respond_json({"success": True, "path": path, "size": size, "timestamp": stamp})

    async def _open(self, query: dict[str, str]) -> tuple[int, dict[str, Any]]:
        path = self._path(query.get("path"))
        answer, (fd,) = await self._instance.executor.ask(
            "file", descriptors=1, op="open", path=path, **file_query.acting(dict(query))
        )
        return fd, _document(answer)

    async def get(self, request: Request) -> None:
        """Send a file, or one range of it."""
        fd, stat = await self._open(request.query())
        try:
            await send_file(request, fd, stat)
        finally:
            os.close(fd)

    async def read_file(self, request: Request) -> None:
        """Send a window of a file as text, for Prime's clients."""
        query = request.query()
        offset = fields.query_int(query, "offset", default=0, minimum=-fields.MAX_INT) or 0
        length = fields.query_int(query, "length")
        fd, _ = await self._open(query)
        try:
            data, start, total = await read_window(fd, offset=offset, length=length, maximum=MAX_READ)
        finally:
            os.close(fd)
        answer = {
            "content": data.decode("utf-8", "replace"),
            "size": len(data),
            "total_size": total,
            "offset": start,
            "truncated": start + len(data) < total,
        }
        request.respond(json.dumps(answer, ensure_ascii=False).encode())

    # -- metadata --------------------------------------------------------------------------------------------

    async def stat(self, request: Request) -> None:
        """Send the metadata of one path."""
        query = request.query()
        follow = fields.query_flag(query, "follow", default=True)
        path = self._path(query.get("path"))
        request.respond_json(
            await self._ask("stat", path=path, follow=follow, **file_query.acting(dict(query)))
        )

    async def list(self, request: Request) -> None:
        """Send one page of a directory's sorted entries."""
        query = request.query()
        limit = fields.query_int(query, "limit", default=MAX_LIST, minimum=1, maximum=MAX_LIST)
        path, cursor = self._path(query.get("path")), query.get("cursor")
        request.respond_json(
            await self._ask("list", path=path, limit=limit, cursor=cursor, **file_query.acting(dict(query)))
        )

    async def mkdir(self, request: Request) -> None:
        """Create a directory."""
        body = request.json()
        path = self._path(fields.text(body, "path"))
        parents = fields.flag(body, "parents", default=True)
        options = {"mode": _mode_field(body), **_owner(body), **file_query.acting(body)}
        request.respond_json(await self._ask("mkdir", path=path, parents=parents, **given(options)))

    async def move(self, request: Request) -> None:
        """Rename a file or directory."""
        body = request.json()
        source = self._path(fields.text(body, "source"), "source")
        target = self._path(fields.text(body, "target"), "target")
        overwrite = fields.flag(body, "overwrite", default=True)
        request.respond_json(
            await self._ask(
                "move", source=source, target=target, overwrite=overwrite, **file_query.acting(body)
            )
        )

    async def chmod(self, request: Request) -> None:
        """Change a file's mode and owner."""
        body = request.json()
        path = self._path(fields.text(body, "path"))
        options = {"mode": _mode_field(body), **_owner(body), **file_query.acting(body)}
        request.respond_json(await self._ask("chmod", path=path, **given(options)))

    async def delete(self, request: Request) -> None:
        """Delete a file or directory."""
        query = request.query()
        path = self._path(query.get("path"))
        recursive = fields.query_flag(query, "recursive", default=False)
        request.respond_json(
            await self._ask("delete", path=path, recursive=recursive, **file_query.acting(dict(query)))
        )


def _said_once(work: Work) -> Work:
    """Turn a 409 into a 400, since Prime's clients retry a 409 four times as a sandbox that is not ready."""

    async def said(request: Request) -> None:
        try:
            await work(request)
        except ApiError as error:
            if error.status == 409:
                error.status = 400
            raise

    return said


def _document(answer: dict[str, Any]) -> dict[str, Any]:
    stat = answer.get("stat")
    if isinstance(stat, dict):
        return stat
    return {name: value for name, value in answer.items() if name not in ("seq", "ok")}


def _mode(value: str | None) -> int | None:
    """Parse octal digits. Raises a 400."""
    if value is None or value == "":
        return None
    if not value.isascii() or not value.isdigit() or len(value) > 5 or not set(value) <= set("01234567"):
        raise bad_input("mode must be octal digits such as 0644", field="mode")
    return int(value, 8)


def _mode_field(body: dict[str, Any]) -> int | None:
    return _mode(fields.text(body, "mode", limit=8))


def _owner(given: dict[str, Any]) -> dict[str, Any]:
    return {"owner": fields.user(given, "owner"), "group": fields.user(given, "group")}


async def _body(request: Request) -> AsyncIterator[bytes]:
    stream = request.stream
    while stream is not None:
        data = await stream.read()
        if not data:
            return
        yield data


async def _file_part(pieces: AsyncIterator[bytes], boundary: bytes) -> AsyncIterator[bytes]:
    """Yield the bytes of the part named `file`. Raises a 400 if there is none or the body is truncated."""
    parser, wanted, found = Multipart(boundary), False, False
    async for piece in pieces:
        for kind, data in parser.feed(piece):
            if kind == BEGIN:
                wanted = data == b"file" and not found
                found = found or wanted
            elif kind == DATA and wanted:
                yield data
            elif kind == FINISH:
                wanted = False
    if not found:
        raise bad_input("the multipart body has no part named `file`", field="file")
    if not parser.complete:
        raise bad_input("the multipart body is truncated: send it again", field="body")
