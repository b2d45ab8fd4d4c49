"""Sends an op's frames to one watcher: kept ones, new ones, keep-alives in silence, then the end."""

from __future__ import annotations

import asyncio

from sandlot_contract.frames import CONTENT_TYPE, END, KEEP_ALIVE, frame

from ..core.op import State
from . import documents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..core.op import Op
    from .request import Request

SILENCE = 15.0  # seconds of silence before a keep-alive
PIECE = 256 * 1024


async def send_frames(request: Request, op: Op, *, offset: int, headers: tuple[tuple[str, str], ...]) -> None:
    """Send frames until the op has ended and all are sent. Raises ClientGone."""
    answer = request.start(kind=CONTENT_TYPE, headers=headers)
    log, io = op.log, op.io
    io.watch()
    loop = asyncio.get_running_loop()
    # The head goes out before the first byte, except for a quiet op: one write, one wake-up.
    first = op.spec is not None and not op.spec.quiet
    while True:
        data = log.read(offset, limit=PIECE)
        if data:
            offset += len(data)
            if op.state is State.ENDED and offset >= log.size:
                answer.finish(data + frame(END, documents.end_payload(op)))
                return
            await answer.write(data)
            first = False
            continue
        if op.state is State.ENDED:
            answer.finish(frame(END, documents.end_payload(op)))
            return
        if first:
            await answer.write(b"")
            first = False
        watcher = loop.create_future()
        io.watchers.append(watcher)
        done, _ = await asyncio.wait([watcher], timeout=SILENCE)
        if not done:
            if watcher in io.watchers:
                io.watchers.remove(watcher)
            await answer.write(frame(KEEP_ALIVE, b""))
