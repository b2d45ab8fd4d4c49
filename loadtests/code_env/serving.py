"""The protocol of a process that makes rollouts: it reads phases from stdin and answers each (messages.py)."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

# Returns the Report of a phase, both as JSON.
Rollouts = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class Conversation:
    """Stdin and stdout of the process. What frameworks print goes to stderr, since stdout has the answers."""

    def __init__(self) -> None:
        self._answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self._reader = asyncio.StreamReader(limit=1 << 20)

    async def setup(self) -> dict[str, Any]:
        """Return the Setup, the first line."""
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self._reader), sys.stdin
        )
        return json.loads(await self._reader.readline())

    async def answer(self, rollouts: Rollouts) -> None:
        """Answer each phase until stdin ends."""
        # A garbage collection over all imports takes tens of milliseconds, which would count as waiting.
        gc.collect()
        gc.freeze()
        self._say({"ready": True})
        line = await self._reader.readline()
        while line:
            working = asyncio.ensure_future(rollouts(json.loads(line)))
            following = asyncio.create_task(self._reader.readline())
            # No message arrives during a phase, so EOF on stdin means that the command has gone.
            await asyncio.wait((working, following), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)
                return
            self._say(working.result())
            line = await following

    def _say(self, told: object) -> None:
        print(json.dumps(told), file=self._answers, flush=True)
