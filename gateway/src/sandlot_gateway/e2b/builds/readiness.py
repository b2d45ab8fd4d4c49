"""Waits, in a create, until the ready command of a template succeeds."""

from __future__ import annotations

import asyncio
from typing import Any

from ..failures import EnvdFailure, Problem
from ..saved import Saved
from .commands import Commands

_PAUSES = (0.1, 0.2, 0.5, 1.0)  # seconds between two tries; the last one repeats


async def wait(commands: Commands, saved: Saved, *, until: float) -> None:
    """Run the ready command until it succeeds; `until` is on the loop's clock. Raises Problem."""
    assert saved.ready is not None
    loop = asyncio.get_running_loop()
    tries = 0
    last: dict[str, Any] = {}
    while (left := until - loop.time()) > 0:
        try:
            last = await commands.run(saved.ready, timeout=left)
        except EnvdFailure as failure:
            text = f"the sandbox was lost before it was ready: {failure}"
            raise Problem(503, text, headers=[(b"should-retry", b"false")]) from failure
        if last.get("verdict") == "exited" and last.get("exit_code") == 0:
            return
        if last.get("verdict") == "start_failed":
            break
        await asyncio.sleep(min(_PAUSES[min(tries, len(_PAUSES) - 1)], max(until - loop.time(), 0)))
        tries += 1
    why = (
        last.get("message") or f"it last ended with {last.get('verdict')}, exit code {last.get('exit_code')}"
    )
    text = f"readyCmd: the template's ready command did not succeed in time: {why}; look at its start command"
    raise Problem(400, text, headers=[(b"should-retry", b"false")])
