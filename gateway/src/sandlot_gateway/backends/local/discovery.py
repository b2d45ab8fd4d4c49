"""Inspects the instance directories of an earlier gateway: which sidecars live, and their state."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import Any

from ...data.pool import DialError, HttpPool, PoolError
from .layout import InstanceDir
from .processes import open_pidfd
from .records import Record, load_record


@dataclass(slots=True)
class Living:
    """A running sidecar that answered. The caller owns `pidfd`."""

    directory: InstanceDir
    record: Record
    pidfd: int
    state: dict[str, Any]


@dataclass(slots=True)
class Dead:
    """An instance without a process, or with one that does not answer."""

    directory: InstanceDir
    record: Record | None
    why: str


async def examine(directory: InstanceDir, *, token: str, pool: HttpPool, patience: float) -> Living | Dead:
    """Inspect one directory. `patience`: seconds for a live process to answer, as it may still be starting."""
    record = load_record(directory.record)
    if record is None:
        return Dead(directory, None, "no readable record")
    if record.process is None:
        return Dead(directory, record, "its start was not finished")
    pidfd = open_pidfd(record.process)
    if pidfd is None:
        return Dead(directory, record, "its process is gone")
    try:
        state = await _ask(directory, token=token, pool=pool, patience=patience)
    except BaseException:
        os.close(pidfd)
        raise
    if isinstance(state, str):
        os.close(pidfd)
        return Dead(directory, record, state)
    return Living(directory, record, pidfd, state)


async def _ask(
    directory: InstanceDir, *, token: str, pool: HttpPool, patience: float
) -> dict[str, Any] | str:
    """Return the state document, or why there is none. A claim that is being applied is waited for: it may name a key."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience
    pause = 0.02
    while True:
        try:
            answer = await pool.fetch(
                directory.address,
                "GET",
                "/v1/state",
                headers=[("authorization", f"Bearer {token}")],
                timeout=max(0.1, deadline - loop.time()),
            )
            state = answer.json()
        except DialError as error:
            if loop.time() + pause > deadline:
                return f"does not answer: {error}"
        except PoolError as error:
            return f"does not answer: {error}"
        else:
            if answer.status != 200 or not isinstance(state, dict):
                return f"answers its state with status {answer.status}"
            if not state.get("claiming") or loop.time() + pause > deadline:
                return state
        await asyncio.sleep(pause)
        pause = min(pause * 2, 0.5)
