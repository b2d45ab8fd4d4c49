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
from sandlot_kube import names
from sandlot_kube.access import Access, TokenFile
from sandlot_kube.objects import Sandbox

from sandlot_controller.endings import Endings

_log = logging.getLogger(__name__)


class LifecycleFailed(Exception):
    """kopf has ended though nobody asked it to."""


def registry(endings: Endings, *, access: Access, loop: asyncio.AbstractEventLoop) -> kopf.OperatorRegistry:
    """`loop`: where the endings live. Event handlers only: kopf's others write annotations into the resources."""
    handlers = kopf.OperatorRegistry()

    sessions: list[aiohttp.ClientSession] = []  # kopf uses the last one

    async def close() -> None:
        while sessions:
            await sessions.pop().close()

    @kopf.on.cleanup(registry=handlers)
    async def cleanup(**_: Any) -> None:
        await close()

    @kopf.on.login(registry=handlers)
    async def login(**_: Any) -> kopf.AiohttpSession:
        token = access.token.read() if isinstance(access.token, TokenFile) else access.token
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connector = aiohttp.TCPConnector(limit=0, ssl=access.ssl or True)
        await close()
        session = aiohttp.ClientSession(connector=connector, headers=headers, trust_env=False)
        sessions.append(session)
        return kopf.AiohttpSession(server=access.server, aiohttp_session=session)

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
    handlers = registry(endings, access=access, loop=asyncio.get_running_loop())
    stop = threading.Event()

    def operate() -> None:
        asyncio.run(_operate(handlers, namespace=namespace, stop=stop))

    thread = asyncio.create_task(asyncio.to_thread(operate))
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
