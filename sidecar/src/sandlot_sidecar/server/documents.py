"""The JSON of an op: its document, and the response of `exec`, at once if small and in pieces if large."""

from __future__ import annotations

import codecs
import json
import time
from _json import encode_basestring_ascii as quote

from sandlot_contract.frames import STDERR, STDOUT
from sandlot_contract.verdicts import CommandVerdict

from ..core.op import Op, State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

HALF = 8 << 20  # of a stream too long for `exec`, this many first and last bytes are sent
SMALL = 1 << 20
FEW = 4096  # frames
PIECE = 64 << 10
# State -> its name in the contract, where that is not `running`.
STATES = {State.QUEUED: "queued", State.ENDED: "ended"}


def usage(op: Op) -> dict[str, Any]:
    """Return the op's usage; `queued` includes the time before it reached the sidecar."""
    begun = op.started if op.started is not None else op.finished
    now = time.monotonic()
    queued = (begun if begun is not None else now) - op.created + op.queued_before
    wall = 0.0
    if op.started is not None:
        wall = (op.finished if op.finished is not None else now) - op.started
    return {
        "queued": round(queued, 6),
        "wall": round(wall, 6),
        "cpu": round(op.cpu, 6),
        "peak_memory": op.peak_memory,
    }


def document(op: Op, *, with_spec: bool = False) -> dict[str, Any]:
    """Return the contract's op document, with the op's spec if asked for and still known."""
    log = op.log
    spec = {"spec": None if op.spec is None else op.spec.document()} if with_spec else {}
    return {
        **spec,
        "op_id": op.op_id,
        "state": STATES.get(op.state, "running"),
        "pid": op.pid,
        "verdict": op.verdict,
        "exit_code": op.exit_code,
        "signal": op.signal,
        "message": op.message,
        "truncated": log.truncated,
        "stdout_bytes": log.stdout_bytes,
        "stderr_bytes": log.stderr_bytes,
        "usage": usage(op),
        "started_at": op.started_at,
        "ended_at": op.ended_at,
        "offset": log.size,
        "detached": op.detached,
    }


def end_payload(op: Op) -> bytes:
    """Return the payload of the `x` frame."""
    return json.dumps(document(op), separators=(",", ":")).encode()


def exec_status(op: Op) -> int:
    """Return 408 for a timeout, 200 for every other end."""
    return 408 if op.verdict == CommandVerdict.TIMEOUT else 200


def is_small(op: Op) -> bool:
    """Return whether the response of `exec` is built in one piece."""
    return op.log.size <= SMALL and op.log.frames <= FEW


def exec_answer(op: Op) -> str:
    """Return the JSON of `exec` for small output."""
    log = op.log
    stdout = log.simple_output(STDOUT).decode("utf-8", "replace") if log.stdout_bytes else ""
    stderr = log.simple_output(STDERR).decode("utf-8", "replace") if log.size else ""
    return f'{{"stdout":{quote(stdout)},"stderr":{quote(stderr)},{_rest(op, truncated=log.truncated)}}}'


def _rest(op: Op, *, truncated: bool) -> str:
    code = op.exit_code
    if code is None:  # it has no exit code; Prime's clients need a number
        code = 126 if op.verdict == CommandVerdict.START_FAILED else 137
    used = usage(op)
    message = "null" if op.message is None else quote(op.message)
    return (
        f'"exit_code":{code},"op_id":"{op.op_id}","verdict":"{op.verdict}",'
        f'"signal":{"null" if op.signal is None else op.signal},"truncated":{"true" if truncated else "false"},'
        f'"stdout_bytes":{op.log.stdout_bytes},"stderr_bytes":{op.log.stderr_bytes},"message":{message},'
        f'"usage":{{"queued":{used["queued"]},"wall":{used["wall"]},"cpu":{used["cpu"]},'
        f'"peak_memory":{used["peak_memory"]}}}'
    )


def exec_pieces(op: Op) -> Iterator[bytes]:
    """Yield the JSON of `exec` for large output, in pieces of bounded size.

    An empty piece lets other tasks run (see FrameLog.output).
    """
    truncated = op.log.truncated
    for kind, _name in ((STDOUT, "stdout"), (STDERR, "stderr")):
        kept = op.log.kept_bytes(kind)
        yield (b'{"stdout":"' if kind == STDOUT else b',"stderr":"')
        if kept <= 2 * HALF:
            yield from _quoted(op.log.output(kind))
        else:
            truncated = True
            yield from _quoted(op.log.output(kind, length=HALF))
            yield from _quoted(op.log.output(kind, offset=kept - HALF))
        yield b'"'
    yield b"," + _rest(op, truncated=truncated).encode() + b"}"


def _quoted(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield JSON string content; characters split between two pieces stay whole."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for piece in pieces:
        if not piece:
            yield piece
        for start in range(0, len(piece), PIECE):
            yield quote(decoder.decode(piece[start : start + PIECE]))[1:-1].encode()
    yield quote(decoder.decode(b"", True))[1:-1].encode()
