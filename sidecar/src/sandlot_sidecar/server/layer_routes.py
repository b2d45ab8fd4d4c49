"""HTTP routes of checkpoints: export what the sandbox has written, and restore it into a fresh sandbox."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import asynccontextmanager

from sandlot_contract.headers import BYTES, ENTRIES, SELECTED

from ..core.ends import not_restored
from ..core.errors import ApiError, ClientGone, bad_input
from ..executor import wire
from ..layer.errors import BY_FILES
from . import fields, shared_layers
from .executor_client import STATUS
from .http import INSTANCE, Route
from .layer_process import LayerProcess
from .shared_layers import Offer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Any

    from ..core.ends import End
    from .http import Http
    from .instance import Instance
    from .request import Request

KIND = "application/vnd.sandlot.layer"
MAX_LINE = 64 * 1024
PATHS, NAMES = 16, 64  # of a selection
SILENCE = 4000.0  # seconds without a byte of an archive, which may still be written: longer than any fork's deadline
CUT = {
    "too_large": "the files grew beyond the limit, or have too many names, during the export: try again",
    "unreadable": "a file changed during the export so that it cannot be stored: try again",
}


class LayerRoutes:
    """Handlers for the layer of one instance; they need the instance token, as only gateways may read the bytes."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._busy = False
        self._failure: str | None = None  # what files did to the last export
        self._offers: set[Offer] = set()

    def add_to(self, http: Http) -> None:
        """Register the routes."""
        http.add("POST", "/v1/checkpoint", Route(self.checkpoint, needs=INSTANCE))
        http.add("GET", "/v1/checkpoint", Route(self.failure, needs=INSTANCE))
        http.add("GET", "/v1/share", Route(self.measure, needs=INSTANCE))
        http.add("POST", "/v1/share", Route(self.share, needs=INSTANCE))
        http.add("DELETE", "/v1/share", Route(self.let_go, needs=INSTANCE))
        http.add("POST", "/v1/restore", Route(self.restore, needs=INSTANCE, streams=True))

    async def _start(
        self, job: str, *, merged: bool, limit: int | None, selection: str | None = None
    ) -> LayerProcess:
        # After an upgrade, this module may be newer than the process that has imported it, and than its executor.
        several = not merged and getattr(self._instance.sandbox, "is_shared", False)
        ask = "layers" if several else "layer"
        _, fds = await self._instance.executor.ask(ask, descriptors=None if several else 1, merged=merged)
        try:
            return LayerProcess(job, layers=fds, limit=limit, selection=selection)
        finally:
            wire.close_all(fds)

    async def checkpoint(self, request: Request) -> None:
        """Stream the archive; one at a time, since each reads the whole layer."""
        instance = self._instance
        instance.life.gate()
        query = request.query()
        limit = fields.query_int(query, "max_bytes", minimum=0)
        job = "store" if query.get("compressed") == "0" else "export"
        body = request.json()
        paths = [_relative(path) for path in fields.strings(body, "paths", most=PATHS)]
        without = fields.strings(body, "without", most=NAMES)
        selection = json.dumps({"paths": paths, "without": without}) if paths or without else None
        async with self._turn():
            process = await self._start(job, merged=False, limit=limit, selection=selection)
            try:
                process.close_stdin()
                await self._send(request, process, selected=selection is not None)
            finally:
                process.close()

    async def measure(self, request: Request) -> None:
        """Tell how much there is to copy for other sandboxes of this machine."""
        self._instance.life.gate()
        limit = fields.query_int(request.query(), "max_bytes", minimum=0)
        async with self._turn():
            process = await self._start("measure", merged=False, limit=limit)
            try:
                request.respond_json(_result((await _line(process))[0]))
            finally:
                process.close()

    async def share(self, request: Request) -> None:
        """Copy the files for other sandboxes of this machine, and tell where; who opens that within a moment keeps them.

        `max_bytes`: of memory for the copy; `entries`: as many as were measured.
        """
        self._instance.life.gate()
        query = request.query()
        room = fields.query_int(query, "max_bytes", minimum=1)
        entries = fields.query_int(query, "entries", minimum=0)
        for name, value in (("max_bytes", room), ("entries", entries)):
            if value is None:  # the kernel takes 0 for no limit
                raise bad_input(f"{name}: missing; ask GET /v1/share for the amount", field=name)
        async with self._turn():
            for earlier in list(self._offers):  # the gateway has not opened them
                earlier.withdraw()
            process = await self._start("share", merged=False, limit=room, selection=str(entries))
            try:
                document = _result((await _line(process))[0])
                offer = Offer(process.pid, ended=self._offers.discard)
            finally:
                process.close()
        self._offers.add(offer)  # until the gateway has opened it
        try:
            if request.gone:
                raise ClientGone("the client disconnected before the response")
            request.respond_json({**document, **offer.document()})
        except BaseException:
            offer.withdraw()
            raise

    def let_go(self, request: Request) -> None:
        """Let go of all copies: the gateway has opened them."""
        for offer in list(self._offers):
            offer.close()
        request.respond_json({})

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Read the files, which no other request of this instance may do meanwhile. Raises ApiError."""
        if self._busy:
            raise ApiError(
                409, "conflict", "another checkpoint of this sandbox is in progress: try again later"
            )
        self._busy = True
        self._failure = None
        self._instance.use.stream_begins()
        try:
            yield
        finally:
            self._busy = False
            self._instance.use.stream_ends()

    def failure(self, request: Request) -> None:
        """Tell what files did to the last export after its answer had begun: an answer that is cut off says nothing."""
        code = self._failure
        request.respond_json({"error": code, "message": CUT.get(code) if code else None})

    async def restore(self, request: Request) -> None:
        """Restore an archive; the sandbox runs commands only afterwards."""
        instance = self._instance
        limit = fields.query_int(request.query(), "max_bytes", minimum=0)
        generation = instance.restoration.begin()
        instance.use.stream_begins()  # a restore is use: the sandbox is not idle
        try:
            document = await self._take(request, limit=limit)
        except ApiError as error:
            await self._end(not_restored(error.message), generation=generation)
            raise
        except (ClientGone, OSError, asyncio.CancelledError):
            end = not_restored("the checkpoint was cut off in transfer")
            instance.tasks.spawn(instance.end(end, generation=generation))
            raise
        except Exception as error:  # otherwise its claim would wait for files that never come
            await self._end(not_restored(f"{type(error).__name__}: {error}"), generation=generation)
            raise
        finally:
            instance.use.stream_ends()
        instance.restoration.done(generation=generation)
        request.respond_json(document)

    async def _end(self, end: End, *, generation: int) -> None:
        # A task of its own: an end is carried out once, also if the gateway goes meanwhile.
        ending = self._instance.tasks.spawn(self._instance.end(end, generation=generation))
        await asyncio.shield(ending)

    async def _send(self, request: Request, process: LayerProcess, *, selected: bool) -> None:
        line, rest = await _line(process)
        document = _result(line)
        answer = request.start(
            kind=KIND,
            headers=(
                (ENTRIES, str(document["entries"])),
                (BYTES, str(document["bytes"])),
                *([(SELECTED, "1")] if selected else []),
            ),
        )
        data = rest or await process.read()
        while data:
            await answer.write(data)
            data = await process.read()
        if (status := await process.wait()) != 0:
            self._failure = next((code for code, one in BY_FILES.items() if one == status), None)
            request.connection.abort()  # only a cut connection shows that the response is incomplete
            return
        answer.finish()

    async def _take(self, request: Request, *, limit: int | None) -> dict[str, Any]:
        data = await _read(request)
        if data.startswith(b"{"):  # which no archive does
            return await self._lay(request, data)
        process = await self._start("restore", merged=True, limit=limit)
        try:
            while data:
                try:
                    await process.write(data)
                except BrokenPipeError:
                    break  # its output says why
                data = await _read(request)
            process.close_stdin()
            line, _ = await _line(process)
            status = await process.wait()
            document = _document(line)
            if status != 0 or "error" in document:
                raise _refusal(document)
            return document
        finally:
            process.close()

    async def _lay(self, request: Request, data: bytes) -> dict[str, Any]:
        """Mount the layer that a document names below the sandbox's own changes."""
        while len(data) < MAX_LINE and (more := await _read(request)):
            data += more
        namespace = shared_layers.opened(_document(data))
        instance = self._instance
        try:
            await instance.sandbox.lay_shared(namespace, instance.ops.pool)
        finally:
            os.close(namespace)
        instance.ops.pool.open()
        return {}


async def _read(request: Request) -> bytes:
    """Return a piece of the body, b"" at its end."""
    if request.stream is None:
        return b""
    # The gateway's node may have died without closing the connection.
    async with asyncio.timeout(SILENCE):
        return await request.stream.read()


def _relative(path: str) -> str:
    parts = path.split("/")
    if parts[0] or len(parts) < 2 or any(part in ("", ".", "..") for part in parts[1:]):
        text = f"paths: must be absolute, below the root and without '.', '..' and '//': {path[:200]!r}"
        raise bad_input(text, field="paths")
    return "/".join(parts[1:])


async def _line(process: LayerProcess) -> tuple[bytes, bytes]:
    data = b""
    while b"\n" not in data and len(data) < MAX_LINE:
        piece = await process.read()
        if not piece:
            break
        data += piece
    line, _, rest = data.partition(b"\n")
    return line, rest


def _document(line: bytes) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _result(line: bytes) -> dict[str, Any]:
    """Return what a process has read or written. Raises ApiError."""
    document = _document(line)
    if "error" in document or "bytes" not in document:
        raise _refusal(document)
    return document


def _refusal(document: dict[str, Any]) -> ApiError:
    code = str(document.get("error", "internal"))
    message = str(document.get("message", "the process of the archive failed: see the sidecar's log"))
    return ApiError(STATUS.get(code, 503), code, message)
