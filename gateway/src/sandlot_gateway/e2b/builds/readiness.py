"""Waits, in a create, until the ready command of a template succeeds."""

from __future__ import annotations

import asyncio
from typing import Any

from sandlot_gateway.control.hang_ups import has_hung_up
from sandlot_gateway.data.answers import Receive

from ..failures import EnvdFailure, Problem
from .commands import Commands

_PAUSES = (0.1, 0.2, 0.5, 1.0)  # seconds between two tries; the last one repeats


async def wait(commands: Commands, command: str, *, receive: Receive, until: float) -> None:
    """Run the ready command until it succeeds; `until` is on the loop's clock. Raises Problem.

    Return early for a client that has left.
    """
    loop = asyncio.get_running_loop()
    tries = 0
    last: dict[str, Any] = {}
    while (left := until - loop.time()) > 0 and not has_hung_up(receive):
        try:
            async with asyncio.timeout_at(until):  # also where the sandbox's machine does not answer
                last = await commands.run(command, timeout=left)
        except TimeoutError:
            break
        except EnvdFailure as failure:
            text = f"the sandbox was lost before it was ready: {failure}"
            raise Problem(503, text, headers=[(b"should-retry", b"false")]) from failure
        if last.get("verdict") == "exited" and last.get("exit_code") == 0:
            return
        if last.get("verdict") == "start_failed":
            break
        await asyncio.sleep(min(_PAUSES[min(tries, len(_PAUSES) - 1)], max(until - loop.time(), 0)))
        tries += 1
    if has_hung_up(receive):
        return
    why = (
        last.get("message") or f"it last ended with {last.get('verdict')}, exit code {last.get('exit_code')}"
    )
    text = f"readyCmd: the template's ready command did not succeed in time: {why}; look at its start command"
    raise Problem(400, text, headers=[(b"should-retry", b"false")])
