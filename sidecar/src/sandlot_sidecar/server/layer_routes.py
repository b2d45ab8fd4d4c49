"""HTTP routes of checkpoints: export what the sandbox has written, and restore it into a fresh sandbox."""

from __future__ import annotations

import asyncio
import json
import os

from sandlot_contract.headers import BYTES, ENTRIES, SELECTED

from ..core.ends import not_restored
from ..core.errors import ApiError, ClientGone, bad_input
from ..layer.errors import BY_FILES
from . import fields
from .executor_client import STATUS
from .http import INSTANCE, Route
from .layer_process import LayerProcess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

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

    def add_to(self, http: Http) -> None:
        """Register the routes."""
        http.add("POST", "/v1/checkpoint", Route(self.checkpoint, needs=INSTANCE))
        http.add("GET", "/v1/checkpoint", Route(self.failure, needs=INSTANCE))
        http.add("POST", "/v1/restore", Route(self.restore, needs=INSTANCE, streams=True))

    async def _start(
        self, job: str, *, merged: bool, limit: int | None, selection: str | None = None
    ) -> LayerProcess:
        _, (fd,) = await self._instance.executor.ask("layer", descriptors=1, merged=merged)
        try:
            return LayerProcess(job, layer=fd, limit=limit, selection=selection)
        finally:
            os.close(fd)

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
        if self._busy:
            raise ApiError(
                409, "conflict", "another checkpoint of this sandbox is in progress: try again later"
            )
        self._busy = True
        self._failure = None
        instance.use.stream_begins()
        process = None
        try:
            process = await self._start(job, merged=False, limit=limit, selection=selection)
            process.close_stdin()
            await self._send(request, process, selected=selection is not None)
        finally:
            self._busy = False
            instance.use.stream_ends()
            if process is not None:
                process.close()

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
            await instance.end(not_restored(error.message), generation=generation)
            raise
        except (ClientGone, OSError, asyncio.CancelledError):
            end = not_restored("the checkpoint was cut off in transfer")
            instance.tasks.spawn(instance.end(end, generation=generation))
            raise
        finally:
            instance.use.stream_ends()
        instance.restoration.done(generation=generation)
        request.respond_json(document)

    async def _send(self, request: Request, process: LayerProcess, *, selected: bool) -> None:
        line, rest = await _line(process)
        document = _document(line)
        if "error" in document or "bytes" not in document:
            raise _refusal(document)
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
        process = await self._start("restore", merged=True, limit=limit)
        try:
            stream = request.stream
            while stream is not None:
                # The gateway's node may have died without closing the connection.
                async with asyncio.timeout(SILENCE):
                    data = await stream.read()
                if not data:
                    break
                try:
                    await process.write(data)
                except BrokenPipeError:
                    break  # its output says why
            process.close_stdin()
            line, _ = await _line(process)
            status = await process.wait()
            document = _document(line)
            if status != 0 or "error" in document:
                raise _refusal(document)
            return document
        finally:
            process.close()


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


def _refusal(document: dict[str, Any]) -> ApiError:
    code = str(document.get("error", "internal"))
    message = str(document.get("message", "the process of the archive failed: see the sidecar's log"))
    return ApiError(STATUS.get(code, 503), code, message)
