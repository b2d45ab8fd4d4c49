"""The kopf side: thin handlers that hand each Sandbox's news to its endings. Pools and starts have loops of their own."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from typing import Any, cast

import aiohttp
import kopf
import msgspec
from sandlot_contract import names
from sandlot_kube.access import Access
from sandlot_kube.objects import Sandbox
from sandlot_kube.sockets import Sockets

from sandlot_controller.endings import Endings

_log = logging.getLogger(__name__)


class LifecycleFailed(Exception):
    """kopf has ended though nobody asked it to."""


class _Sessions:
    """kopf's: it asks for one at its start and whenever the API server refuses its token."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._session: aiohttp.ClientSession | None = None
        self._sockets = Sockets()

    async def login(self) -> kopf.AiohttpSession:
        await self.close()
        token = self._access.bearer()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connector = aiohttp.TCPConnector(
            limit=0, ssl=self._access.ssl or True, socket_factory=self._sockets.make
        )
        self._session = aiohttp.ClientSession(connector=connector, headers=headers, trust_env=False)
        return kopf.AiohttpSession(server=self._access.server, aiohttp_session=self._session)

    async def close(self) -> None:
        if self._session is not None:
            await self._sockets.close(self._session)
            self._session = None


def _registry(
    endings: Endings, sessions: _Sessions, *, loop: asyncio.AbstractEventLoop
) -> kopf.OperatorRegistry:
    """`loop`: where the endings live. Event handlers only: kopf's others write annotations into the resources."""
    handlers = kopf.OperatorRegistry()

    @kopf.on.login(registry=handlers)
    async def login(**_: Any) -> kopf.AiohttpSession:
        return await sessions.login()

    @kopf.on.event(names.GROUP, names.VERSION, names.SANDBOX_PLURAL, registry=handlers)
    async def sandbox(event: Any, **_: Any) -> None:
        try:
            resource = msgspec.convert(event["object"], Sandbox)
        except msgspec.ValidationError as error:
            _log.warning("a Sandbox cannot be read: %s", error)
            return
        loop.call_soon_threadsafe(endings.gone if event["type"] == "DELETED" else endings.seen, resource)

    return handlers


async def run(endings: Endings, *, access: Access, namespace: str) -> None:
    """Until cancelled. Raises LifecycleFailed.

    In a thread with a loop of its own: at its end kopf cancels every task of its loop that is younger than itself.
    """
    sessions = _Sessions(access)
    handlers = _registry(endings, sessions, loop=asyncio.get_running_loop())
    stop = threading.Event()

    async def operate() -> None:
        try:
            await _operate(handlers, namespace=namespace, stop=stop)
        finally:
            await sessions.close()

    thread = asyncio.create_task(asyncio.to_thread(asyncio.run, operate()))
    try:
        await asyncio.shield(thread)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.gather(thread, return_exceptions=True)
        raise
    except Exception as error:
        raise LifecycleFailed(f"kopf failed: {error}") from error
    raise LifecycleFailed("kopf has ended")


async def _operate(handlers: kopf.OperatorRegistry, *, namespace: str, stop: threading.Event) -> None:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = (
        True  # the two resources are there from the start; watching CRDs needs more rights
    )
    settings.peering.standalone = True  # the Lease says who works
    settings.queueing.worker_limit = 64  # else a burst of 10,000 resources makes 10,000 tasks
    settings.process.ultimate_exiting_timeout = None
    await kopf.operator(
        registry=handlers,
        settings=settings,
        namespaces=[namespace],
        standalone=True,
        stop_flag=stop,
        # By itself kopf asks for the user's name, which an image's numeric user does not have.
        identity=cast(Any, socket.gethostname()),  # a NewType of str that kopf does not export
    )
