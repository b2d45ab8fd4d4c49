"""What the tools for commands share: a command's state, and parts of its output, bounded whatever it writes."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import Any

from sandlot._async.plane import AsyncPlane
from sandlot._async.process import AsyncProcess
from sandlot._async.stream import AsyncOpStream
from sandlot._protocol import documents
from sandlot._protocol.answers import end_error
from sandlot._protocol.messages import with_query
from sandlot.integrations.mcp.schema import out

Document = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """A part of one stream; `next` is the offset of what follows."""

    text: str
    next: int
    truncated: bool = False


def state_fields(state: Document, *, sandbox_id: str) -> dict[str, Any]:
    """Return the fields of a result about a command. Raises SandboxLost for one that was lost, StartFailed."""
    ended = state.get("state") == "ended"
    end = documents.exit_event(state, op_id=str(state.get("op_id", "")))
    error = end_error(end, sandbox_id=sandbox_id) if ended else None
    if error is not None:
        raise error
    return {
        "op_id": end.op_id,
        "state": str(state.get("state", "running")),
        "verdict": str(end.verdict) if ended else None,
        "exit_code": end.exit_code if ended else None,
        "signal": end.signal if ended else None,
        "message": end.message if ended else None,
    }


async def read_part(
    plane: AsyncPlane, op_id: str, stream: str, *, offset: int, most: int, final: bool = False
) -> Part:
    """Read at most `most` bytes from `offset` on; a character that is cut at the end is left to the next part.

    `final`: nothing more is to come, so that half a character at the end stays one.
    """
    data = await _bytes(plane, op_id, stream, offset=offset, length=most)
    return decode_part(data, offset=offset, final=final and len(data) < most)


def decode_part(data: bytes, *, offset: int, final: bool) -> Part:
    """Decode UTF-8 bytes from `offset` on as `read_part` does."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    whole = decoder.decode(data, final)
    rest = len(decoder.getstate()[0])
    if rest == len(data):  # or a reader of single bytes would never get past a long character
        return Part(data.decode("utf-8", "replace"), offset + len(data))
    return Part(whole, offset + len(data) - rest)


async def read_ends(
    plane: AsyncPlane, op_id: str, stream: str, *, size: int, most: int, dropped: bool
) -> Part:
    """Read a whole stream of `size` bytes, or of a larger one the begin and the end, with a note between them."""
    if size <= most:
        data = await _bytes(plane, op_id, stream, offset=0, length=size) if size else b""
        return Part(data.decode("utf-8", "replace"), size, len(data) < size)
    half = most // 2
    begin = await read_part(plane, op_id, stream, offset=0, most=half)
    if dropped:  # the end is not kept
        note = f"\n[sandlot: bytes {begin.next} to {size} are left out; the sandbox keeps a part of them for read_output]\n"
        return Part(begin.text + note, size, True)
    tail = await _bytes(plane, op_id, stream, offset=size - half, length=half)
    note = f"\n[sandlot: bytes {begin.next} to {size - half} are left out; read_output has them]\n"
    return Part(begin.text + note + tail.decode("utf-8", "replace"), size, True)


async def _bytes(plane: AsyncPlane, op_id: str, stream: str, *, offset: int, length: int) -> bytes:
    query = {"stream": stream, "offset": offset, "length": length}
    return (await plane.send("GET", with_query(f"/ops/{op_id}/output", query))).body


def process(plane: AsyncPlane, op: str) -> AsyncProcess:
    """Return a handle on a running command, without a request."""
    stream = AsyncOpStream(plane=plane, op_id=op, document=None, keep=True)
    return AsyncProcess(plane=plane, stream=stream, detached=True, written=None)


async def read_state(plane: AsyncPlane, op: str, *, wait: float) -> Document:
    return await plane.call("GET", f"/ops/{op}", query={"wait": wait or None}, timeout=wait + 30.0)


def sizes_of(state: Document) -> dict[str, int]:
    return {name: int(state.get(name) or 0) for name in ("stdout_bytes", "stderr_bytes")}


END = {
    "op_id": out("string", "The command's id, for read_output, write_stdin and kill_command."),
    "state": out("string", "queued, running or ended."),
    "verdict": out(["string", "null"], "Why it ended, null while it runs; see the server's instructions."),
    "exit_code": out(
        ["integer", "null"], "0 is success, 128 + the signal for one that a signal ended; null while it runs."
    ),
    "signal": out(["integer", "null"], "The signal that ended it."),
    "message": out(["string", "null"], "More about the verdict."),
}
OUTPUT = {
    "stdout": out("string", "Standard output as UTF-8 text; other bytes are U+FFFD."),
    "stderr": out("string", "Standard error, likewise."),
    "stdout_bytes": out("integer", "Bytes of all standard output so far."),
    "stderr_bytes": out("integer", "Bytes of all standard error so far."),
}
