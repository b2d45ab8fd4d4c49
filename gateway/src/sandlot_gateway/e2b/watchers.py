"""Watches directories by listing them again: at each call of a client that polls, or while its stream is open."""

from __future__ import annotations

import asyncio
import secrets
import time
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
from .watch_room import Pace, WatchRoom

_MOST = 2000
_MOST_DIRECTORIES = 500  # of one look: each is a request to the sidecar
_MOST_NAMES = 256 << 10  # characters of the paths of one look, which stays in memory
_DEEPEST = 16  # levels of a recursive watch
_IDLE = 600.0  # seconds without a call after which a watcher is dropped
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
        self._room = WatchRoom()

    async def create(self, call: SidecarCall, body: bytes) -> dict[str, Any]:
        asked, route = read(body, messages.Watch), call.route
        self._drop_idle()
        self._room.take(route.tenant, route.sandbox_id)
        try:
            watcher = _Watcher(route.tenant, asked, await _look(call, asked))
        except BaseException:
            self._room.leave(route.tenant, route.sandbox_id)
            raise
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
        self._drop((call.route.sandbox_id, read(body, messages.WatcherId).watcher_id))
        return {}

    async def stream(self, call: SidecarCall, body: bytes, stream: RpcStream) -> None:
        """Send changes until the client leaves. Raises ClientGone then."""
        asked, route = read(body, messages.Watch), call.route
        self._room.take(route.tenant, route.sandbox_id)
        leaving = asyncio.get_running_loop().create_task(wait_for_disconnect(stream.receive))
        try:
            began, pace = time.monotonic(), Pace()
            look = await _look(call, asked)
            pause = pace.pause(took=time.monotonic() - began, changed=True)
            stream.add({"start": {}})
            await stream.flush()
            told_at = time.monotonic()
            while True:
                await asyncio.wait([leaving], timeout=pause)
                if leaving.done():
                    raise ClientGone
                began = time.monotonic()
                before, look = look, await _look(call, asked)
                found = changes.changes(before, look)
                pause = pace.pause(took=time.monotonic() - began, changed=bool(found))
                for event in found:
                    stream.add({"filesystem": event})
                if not found and time.monotonic() - told_at >= _KEEPALIVE:
                    stream.add({"keepalive": {}})
                    found = [{}]
                if found:
                    told_at = time.monotonic()
                    await stream.flush()
        finally:
            self._room.leave(route.tenant, route.sandbox_id)
            leaving.cancel()
            await asyncio.wait([leaving])

    def _drop_idle(self) -> None:
        since = time.monotonic() - _IDLE
        for key in [key for key, one in self._polled.items() if one.used_at < since]:
            self._drop(key)

    def _drop(self, key: tuple[SandboxId, str]) -> None:
        found = self._polled.pop(key, None)
        if found is not None:
            self._room.leave(found.tenant, key[0])


async def _look(call: SidecarCall, asked: messages.Watch) -> changes.Look:
    """Return what the watched directory has now. Raises EnvdFailure."""
    depth = _DEEPEST if asked.recursive else 1
    entries = await entries_below(
        call, asked.path, depth=depth, most=_MOST, most_directories=_MOST_DIRECTORIES
    )
    look = changes.look_of(entries)
    if sum(map(len, look)) > _MOST_NAMES:
        text = f"path: the names below {asked.path!r} have more than {_MOST_NAMES} characters"
        raise EnvdFailure("resource_exhausted", text)
    return look
