"""Transfers a layer's archive between a sidecar and the store, piece by piece."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

import msgspec
from sandlot_contract.headers import BYTES_KEY, ENTRIES_KEY, SELECTED_KEY

from sandlot_gateway.checkpoints.interface import OpenArchive
from sandlot_gateway.checkpoints.threads import StoreThreads
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.data.conn import Connection
from sandlot_gateway.data.outgoing import host_header, request_bytes
from sandlot_gateway.data.pool import DialError, HttpPool, UpstreamError

_PIECE = 1 << 20
_PATIENCE = 120.0  # seconds without a byte; a sidecar measures all files before the first one
_MAX_ANSWER = 64 * 1024
_BY_FILES = ("too_large", "unreadable")  # errors of an export that only the sandbox's files cause
_BUSY = "conflict"


class Selection(msgspec.Struct, frozen=True):
    """What a checkpoint takes: what is at or below `paths` (all if none), without names like `without`."""

    paths: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.paths or self.without)


EVERYTHING = Selection()


class Fetched(msgspec.Struct, frozen=True):
    """What an archive has: its entries, and the bytes of the files in it."""

    entries: int
    bytes: int


class Refused(Exception):
    """Raised when the sidecar rejects a transfer, with its reason.

    `by_files`: the sandbox's files are the cause; `busy`: it still writes an archive that its reader has left.
    """

    def __init__(self, message: str, *, by_files: bool = False, busy: bool = False) -> None:
        super().__init__(message)
        self.by_files = by_files
        self.busy = busy


async def fetch_layer(
    pool: HttpPool,
    instance: Instance,
    *,
    write: Callable[[bytes], None],
    threads: StoreThreads,
    max_bytes: int,
    selection: Selection,
    compressed: bool,
) -> Fetched:
    """Pass the archive to `write`, called in one of `threads`; return what it has. An older sidecar compresses it always.

    Raises Refused, DialError, UpstreamError, TimeoutError and what `write` raises.
    """
    target = f"/v1/checkpoint?max_bytes={max_bytes}&compressed={compressed:d}"
    connection = await pool.acquire(instance.address, known_alive=True, timeout=_PATIENCE)
    try:
        body = msgspec.json.encode(selection) if selection else b""
        connection.begin(_head(instance, target, length=len(body)))
        if body:
            connection.write(body)
        async with asyncio.timeout(_PATIENCE):
            response = await connection.head()
        if response.status != 200:
            raise await _refusal(connection, status=response.status)
        if selection and not any(name == SELECTED_KEY for name, _ in response.headers):
            raise Refused("the sandbox's sidecar is older than `paths` and `without`: create a new sandbox")
        told = dict(response.headers)
        try:
            async for piece in _pieces(connection):
                await threads.whole(write, piece)
        except UpstreamError as error:
            raise await _why_cut(pool, instance, error) from error
        return Fetched(int(told.get(ENTRIES_KEY, 0)), int(told.get(BYTES_KEY, 0)))
    finally:
        pool.release(connection)


async def _why_cut(pool: HttpPool, instance: Instance, error: UpstreamError) -> Exception:
    """Return Refused if the sandbox's files are why its sidecar cut the archive off, else the error itself."""
    try:
        connection = await pool.acquire(instance.address, known_alive=True, timeout=_PATIENCE)
        try:
            connection.begin(_head(instance, "/v1/checkpoint", length=0, method="GET"))
            async with asyncio.timeout(_PATIENCE):
                response = await connection.head()
            refused = await _refusal(connection, status=response.status)
        finally:
            pool.release(connection)
    except (DialError, UpstreamError, TimeoutError):
        return error
    return refused if refused.by_files else error


async def send_layer(
    pool: HttpPool,
    instance: Instance,
    archive: AbstractAsyncContextManager[OpenArchive],
    *,
    threads: StoreThreads,
    max_bytes: int,
) -> None:
    """Send an archive or a document to the sidecar, once it is there; return when the sidecar has all of it.

    Raises Refused, DialError, UpstreamError, TimeoutError, OSError and what `archive` raises.
    """
    target = f"/v1/restore?max_bytes={max_bytes}"
    connection = await pool.acquire(instance.address, known_alive=True, timeout=_PATIENCE)
    try:
        # Now: the sidecar ends a sandbox whose restore has not begun in a minute, and the archive may take longer.
        connection.begin(_head(instance, target, length=None))
        async with archive as opened:
            while not connection.closed and not connection.answering:
                piece = await threads.whole(opened.read, _PIECE)
                connection.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                if not piece:
                    break
                async with asyncio.timeout(_PATIENCE):
                    await connection.drain()
            async with asyncio.timeout(_PATIENCE):
                response = await connection.head()
            if response.status != 200:
                raise await _refusal(connection, status=response.status)
            async for _ in _pieces(connection):
                pass
    finally:
        pool.release(connection)


def _head(instance: Instance, target: str, *, length: int | None, method: str = "POST") -> bytes:
    """Return the head of a request; its body is chunked if `length` is None."""
    framing = ("transfer-encoding", "chunked") if length is None else ("content-length", str(length))
    headers = [("authorization", f"Bearer {instance.token}"), framing]
    return request_bytes(method, target, host=host_header(instance.address), headers=headers, body=None)


async def _pieces(connection: Connection) -> AsyncIterator[bytes]:
    """Yield the answer's body in larger pieces. Raises UpstreamError if it is cut off."""
    while True:
        held: list[bytes] = []
        size = 0
        while size < _PIECE:
            async with asyncio.timeout(_PATIENCE):
                data = await connection.read()
            if not data:
                break
            held.append(data)
            size += len(data)
        if not held:
            return
        yield b"".join(held)


async def _refusal(connection: Connection, *, status: int) -> Refused:
    body = b""
    try:
        async with asyncio.timeout(_PATIENCE):
            while len(body) < _MAX_ANSWER and (data := await connection.read()):
                body += data
    except UpstreamError:
        body = b""
    return refused(body, status=status)


def refused(body: bytes, *, status: int) -> Refused:
    """Return the error that a sidecar answered."""
    try:
        document = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        document = None
    told: dict[str, object] = document if isinstance(document, dict) else {}
    text = str(told.get("message") or f"the sandbox's sidecar answered {status}")
    return Refused(text, by_files=told.get("error") in _BY_FILES, busy=told.get("error") == _BUSY)
