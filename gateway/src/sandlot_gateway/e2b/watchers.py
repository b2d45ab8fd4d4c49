"""Watches directories by listing them again: at each call of a client that polls, or while its stream is open."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from typing import Any

from sandlot_contract.ids import SandboxId

from sandlot_gateway.data.disconnects import wait_for_disconnect
from sandlot_gateway.data.errors import ClientGone

from . import changes, messages
from .failures import EnvdFailure
from .filesystem import entries_below
from .messages import read
from .rpc_stream import RpcStream
from .sidecar_call import SidecarCall

_PER_SANDBOX = 16
_PER_TENANT = 64  # each keeps a look at up to _MOST entries in memory
_MOST = 2000
_DEEPEST = 16  # levels of a recursive watch
_IDLE = 600.0  # seconds without a call after which a watcher is dropped
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 2.0  # seconds between looks: longer while nothing changes
_KEEPALIVE = 15.0


class _Watcher:
    def __init__(self, tenant: str, asked: messages.Watch, look: changes.Look) -> None:
        self.tenant = tenant
        self.asked = asked
        self.look = look
        self.used_at = time.monotonic()


class Watchers:
    """Those that clients poll are in this gateway's memory: another one does not know them."""

    def __init__(self) -> None:
        self._polled: dict[tuple[SandboxId, str], _Watcher] = {}
        self._streams: Counter[SandboxId] = Counter()

    async def create(self, call: SidecarCall, body: bytes) -> dict[str, Any]:
        asked, route = read(body, messages.Watch), call.route
        self._drop_idle()
        self._check_room(route.sandbox_id)
        if sum(one.tenant == route.tenant for one in self._polled.values()) >= _PER_TENANT:
            raise EnvdFailure("resource_exhausted", f"more than {_PER_TENANT} watchers: remove some first")
        watcher = _Watcher(route.tenant, asked, await _look(call, asked))
        name = secrets.token_hex(8)
        self._polled[route.sandbox_id, name] = watcher
        return {"watcherId": name}

    async def events(self, call: SidecarCall, body: bytes) -> dict[str, Any]:
        """Return what changed since the last call."""
        found = self._polled.get((call.route.sandbox_id, name := read(body, messages.WatcherId).watcher_id))
        if found is None:
            raise EnvdFailure(
                "not_found", f"no watcher {name[:100]!r}: it was removed, or another gateway has it"
            )
        found.used_at = time.monotonic()
        before, found.look = found.look, await _look(call, found.asked)
        return {"events": changes.changes(before, found.look)}

    async def remove(self, call: SidecarCall, body: bytes) -> dict[str, Any]:
        self._polled.pop((call.route.sandbox_id, read(body, messages.WatcherId).watcher_id), None)
        return {}

    async def stream(self, call: SidecarCall, body: bytes, stream: RpcStream) -> None:
        """Send changes until the client leaves. Raises ClientGone then."""
        asked, sandbox_id = read(body, messages.Watch), call.route.sandbox_id
        self._check_room(sandbox_id)
        self._streams[sandbox_id] += 1
        leaving = asyncio.get_running_loop().create_task(wait_for_disconnect(stream.receive))
        try:
            look = await _look(call, asked)
            stream.add({"start": {}})
            await stream.flush()
            pause, told_at = _FIRST_PAUSE, time.monotonic()
            while True:
                await asyncio.wait([leaving], timeout=pause)
                if leaving.done():
                    raise ClientGone
                before, look = look, await _look(call, asked)
                found = changes.changes(before, look)
                pause = _FIRST_PAUSE if found else min(pause * 1.5, _LONGEST_PAUSE)
                for event in found:
                    stream.add({"filesystem": event})
                if not found and time.monotonic() - told_at >= _KEEPALIVE:
                    stream.add({"keepalive": {}})
                    found = [{}]
                if found:
                    told_at = time.monotonic()
                    await stream.flush()
        finally:
            self._streams[sandbox_id] -= 1
            if not self._streams[sandbox_id]:
                del self._streams[sandbox_id]
            leaving.cancel()
            await asyncio.wait([leaving])

    def _check_room(self, sandbox_id: SandboxId) -> None:
        polled = sum(owner == sandbox_id for owner, _ in self._polled)
        if polled + self._streams[sandbox_id] >= _PER_SANDBOX:
            raise EnvdFailure(
                "resource_exhausted", f"more than {_PER_SANDBOX} watchers of one sandbox: remove some first"
            )

    def _drop_idle(self) -> None:
        since = time.monotonic() - _IDLE
        self._polled = {key: one for key, one in self._polled.items() if one.used_at >= since}


async def _look(call: SidecarCall, asked: messages.Watch) -> changes.Look:
    depth = _DEEPEST if asked.recursive else 1
    return changes.look_of(await entries_below(call, asked.path, depth=depth, most=_MOST))
