"""GET and POST /files: the bytes of a file, and uploads of one file or several."""

from __future__ import annotations

import posixpath
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from sandlot_gateway.data.answers import Receive, Scope, Send, send_json
from sandlot_gateway.data.forward import RequestHead, forward
from sandlot_gateway.data.wire import Headers

from .failures import EnvdFailure, invalid, of_sidecar
from .file_query import FileQuery
from .multipart import Mark, MultipartReader, Part, boundary_of
from .sidecar_call import SidecarCall
from .uploads import body_pieces, unpacked, write_file

_KEPT = (b"content-length", b"content-range", b"accept-ranges", b"last-modified", b"transfer-encoding")
_MOST_DROPPED = (
    1 << 20
)  # bytes of an upload that are not a file's: a few kilobytes of gzip unpack to gigabytes


class Files:
    """One request to /files, whose caller is authenticated."""

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, *, query: FileQuery, request_id: bytes
    ) -> None:
        self._receive = receive
        self._send = send
        self._request_id = request_id
        self._headers: dict[bytes, bytes] = dict(scope["headers"])
        self._path = query.path

    async def download(self, call: SidecarCall) -> int:
        """Send a file; return the status. Raises EnvdFailure, DialError, UpstreamError, Truncated, ClientGone."""
        if not self._path:
            raise invalid("path", "is required: the path to read")
        lines = [
            b"GET /v1/files?%b HTTP/1.1\r\nhost: sidecar\r\n" % call.file_query(path=self._path).encode()
        ]
        lines += [b"%b: %b\r\n" % header for header in call.headers]
        if (wanted := self._headers.get(b"range")) is not None:
            lines.append(b"range: %b\r\n" % wanted)

        def edit(status: int, headers: Headers, body: bytes | None) -> tuple[int, Headers, bytes | None]:
            own = [(b"x-request-id", self._request_id)]
            if status < 400:
                kept = [header for header in headers if header[0] in _KEPT]
                return status, [*kept, (b"content-type", b"application/octet-stream"), *own], body
            # An error that is still arriving is sent as it is: it has a message, too.
            failure = of_sidecar(status, body or b"", call.route.sandbox_id)
            if body is None:
                return failure.http_status, headers, None
            told = msgspec.json.encode(failure.http_document())
            head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(told)), *own]
            return failure.http_status, head, told

        status, _ = await forward(
            pool=call.pool,
            key=call.route.address,
            head=RequestHead(lines, None, "GET"),
            first={"type": "http.request", "body": b"", "more_body": False},
            receive=self._receive,
            send=self._send,
            edit=edit,
        )
        return status

    async def upload(self, call: SidecarCall) -> int:
        """Write what the body has; return the status. Raises EnvdFailure, DialError, UpstreamError, ClientGone."""
        kind = self._headers.get(b"content-type", b"").decode("latin-1")
        plain = kind.partition(";")[0].strip().lower()
        coding = self._headers.get(b"content-encoding", b"identity").strip().lower()
        if coding not in (b"identity", b"gzip"):
            raise invalid("content-encoding", "must be gzip, or left out")
        pieces = body_pieces(self._receive)
        if coding == b"gzip":
            pieces = unpacked(pieces)
        if plain == "multipart/form-data":
            written = await self._parts(call, pieces, boundary=boundary_of(kind))
        elif plain == "application/octet-stream":
            await write_file(call, self._path, pieces)
            written = [_info(self._path)]
        else:
            text = "content-type: must be multipart/form-data or application/octet-stream"
            raise EnvdFailure("invalid_argument", text, status=415)
        await send_json(self._send, 200, written, headers=[(b"x-request-id", self._request_id)])
        return 200

    async def _parts(
        self, call: SidecarCall, pieces: AsyncIterator[bytes], *, boundary: bytes
    ) -> list[dict[str, Any]]:
        """Write the part `file` of the form, or all of them, each to the path in its file name."""
        written: list[dict[str, Any]] = []
        dropped = 0
        reader = MultipartReader(boundary)
        events = _events(reader, pieces)
        async for event in events:
            if isinstance(event, bytes):  # of a field that is no file
                dropped += len(event)
                if dropped > _MOST_DROPPED:
                    raise invalid("body", f"more than {_MOST_DROPPED} bytes are in no part named file")
            if not isinstance(event, Part) or event.name != "file":
                continue
            path = self._path or event.filename or ""
            if self._path and written:
                raise invalid("path", "with several files leave it out: their file names are their paths")
            await write_file(call, path, _content(events))
            written.append(_info(path))
        if not written:
            raise invalid("file", "is required: the form has no part of this name")
        return written


async def _events(
    reader: MultipartReader, pieces: AsyncIterator[bytes]
) -> AsyncIterator[Part | bytes | Mark]:
    dropped = 0
    async for piece in pieces:
        if reader.ended:
            dropped += len(piece)
            if dropped > _MOST_DROPPED:
                raise invalid("body", f"more than {_MOST_DROPPED} bytes follow the last boundary")
            continue
        for event in reader.feed(piece):
            yield event
    reader.finish()


async def _content(events: AsyncIterator[Part | bytes | Mark]) -> AsyncIterator[bytes]:
    async for event in events:
        if event is Mark.END_OF_PART:
            return
        if isinstance(event, bytes):
            yield event


def _info(path: str) -> dict[str, Any]:
    return {"path": path, "name": posixpath.basename(path), "type": "file"}
