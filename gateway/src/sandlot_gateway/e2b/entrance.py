"""How a request to a sandbox gets to its sidecar: when the sandbox is ready, and in the order of its queue."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sandlot_gateway.data.answers import Receive
from sandlot_gateway.data.pool import HttpPool
from sandlot_gateway.data.request_gate import RequestGate

from .access import Caller
from .sidecar_call import SidecarCall


class Entrance:
    def __init__(self, *, gate: RequestGate, pool: HttpPool) -> None:
        self._gate = gate
        self._pool = pool

    @asynccontextmanager
    async def entered(
        self, caller: Caller, request_id: bytes, *, receive: Receive | None, takes_place: bool = True
    ) -> AsyncIterator[SidecarCall]:
        """Wait for the sandbox, and for a place if the request takes one, until the block is left."""
        gate, sandbox_id = self._gate, caller.sandbox_id
        route = await gate.ready(sandbox_id, caller.tenant, receive=receive)
        queued = None
        if takes_place and not gate.try_enter(sandbox_id, tenant=caller.tenant, name="e2b"):
            seconds = await gate.enter(sandbox_id, tenant=caller.tenant, name="e2b", receive=receive)
            queued = b"%.6f" % seconds
        try:
            if queued is not None:  # the sandbox may have ended meanwhile
                route = await gate.ready(sandbox_id, caller.tenant, receive=receive)
            yield SidecarCall(
                pool=self._pool, route=route, request_id=request_id, user=caller.user, queued=queued
            )
        finally:
            if takes_place:
                gate.leave(sandbox_id)
