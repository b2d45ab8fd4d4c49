"""Bounds the contexts that the token of a sandbox's apps may begin: else it could take all of the sandbox's commands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from sandlot_contract.ids import SandboxId

from . import code_contexts as contexts
from .failures import EnvdFailure
from .sidecar_call import SidecarCall

MOST = 8  # contexts of a sandbox, whoever began them


class ContextRoom:
    def __init__(self) -> None:
        self._locks: WeakValueDictionary[SandboxId, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def taken(self, call: SidecarCall) -> AsyncIterator[None]:
        """Let a context begin in the block if there is room. Raises EnvdFailure."""
        sandbox_id = call.route.sandbox_id
        lock = self._locks.get(sandbox_id)
        if lock is None:
            lock = self._locks[sandbox_id] = asyncio.Lock()
        async with lock:  # else several would find the same room
            if len(await contexts.running(call)) >= MOST:
                text = f"the sandbox has {MOST} contexts, the limit for E2b-Traffic-Access-Token"
                then = "remove one, or send the sandbox's access token as X-Access-Token"
                raise EnvdFailure("resource_exhausted", f"{text}: {then}")
            yield
