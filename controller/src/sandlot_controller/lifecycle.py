"""Watches resources with kopf: Sandboxes for the cleanup of ended ones, ImageWarmups for their loop."""

from __future__ import annotations

import asyncio
import functools
import logging
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, cast

import aiohttp
import kopf
import msgspec
from sandlot_contract import names
from sandlot_kube import backoff
from sandlot_kube.access import Access
from sandlot_kube.objects import Sandbox
from sandlot_kube.sockets import Sockets
from sandlot_kube.warmups import ImageWarmup

from .act.ended_sandboxes import EndedSandboxes
from .act.warmups import WarmupLoop
from .kopf_watches import KopfWatches

_log = logging.getLogger(__name__)
# kopf's name of the task of all its watches, which ends only by a failure.
_WATCHES = "multidimensional multitasker"
_SHORTEST, _LONGEST = 0.2, 10.0  # seconds between two logins
_SHORTEST_UNREAD = 1.0  # instead, if the token cannot be read


class LifecycleFailed(Exception):
    """kopf failed, or ended without being stopped."""


class _Sessions:
    """Sessions for kopf, which asks for one at its start and whenever the API server rejects its token."""

    def __init__(
        self, access: Access, *, trace: aiohttp.TraceConfig, failed: Callable[[str], object]
    ) -> None:
        """`failed` is called with the reason of each login that fails."""
        self._access = access
        self._trace = trace
        self._failed = failed
        self._session: aiohttp.ClientSession | None = None
        self._sockets = Sockets()
        self._again = 0  # logins in quick succession
        self._last = float("-inf")

    async def login(self) -> kopf.AiohttpSession:
        self._again = self._again + 1 if time.monotonic() - self._last < 2 * _LONGEST else 0
        if self._again:
            # kopf repeats its requests at once, with a token that may be no other than before.
            await asyncio.sleep(backoff.pause(self._again, shortest=_SHORTEST, longest=_LONGEST))
        self._last = time.monotonic()
        await self.close()
        token = await self._bearer()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connector = aiohttp.TCPConnector(
            limit=0, ssl=self._access.ssl or True, socket_factory=self._sockets.make
        )
        self._session = aiohttp.ClientSession(
            connector=connector, headers=headers, trust_env=False, trace_configs=[self._trace]
        )
        return kopf.AiohttpSession(server=self._access.server, aiohttp_session=self._session)

    async def _bearer(self) -> str | None:
        """Return the token, as soon as it can be read: kopf would wait for a minute after an error."""
        failures = 0
        while True:
            try:
                return self._access.bearer()
            except OSError as error:
                failures += 1
                wait = backoff.pause(failures, shortest=_SHORTEST_UNREAD, longest=_LONGEST)
                _log.warning(
                    "cannot log in with kopf, trying again in %.1f s: the token cannot be read: %s",
                    wait,
                    error,
                )
                self._failed(f"the token cannot be read: {error}")
                await asyncio.sleep(wait)

    async def close(self) -> None:
        if self._session is not None:
            await self._sockets.close(self._session)
            self._session = None


def _trace(watches: KopfWatches, *, loop: asyncio.AbstractEventLoop) -> aiohttp.TraceConfig:
    """Return what tells `watches`, in `loop`, of a session's requests and the answers to them."""
    trace = aiohttp.TraceConfig()

    def tell(
        request: aiohttp.TraceRequestEndParams | aiohttp.TraceRequestExceptionParams, wrong: str | None
    ) -> None:
        path, watch = request.url.path, "watch" in request.url.query
        loop.call_soon_threadsafe(functools.partial(watches.answered, path, watch=watch, wrong=wrong))

    async def asked(_session: Any, _context: Any, request: aiohttp.TraceRequestStartParams) -> None:
        loop.call_soon_threadsafe(watches.asked, request.url.path)

    async def answered(_session: Any, _context: Any, request: aiohttp.TraceRequestEndParams) -> None:
        status = request.response.status
        tell(request, None if status < 400 else f"status {status}")

    async def unanswered(
        session: aiohttp.ClientSession, _context: Any, request: aiohttp.TraceRequestExceptionParams
    ) -> None:
        error = request.exception
        # Neither a cancellation nor a request of the session before, which a login has closed.
        if isinstance(error, (aiohttp.ClientError, TimeoutError)) and not session.closed:
            tell(request, str(error) or type(error).__name__)

    trace.on_request_start.append(asked)
    trace.on_request_end.append(answered)
    trace.on_request_exception.append(unanswered)
    return trace


def _registry(
    ended: EndedSandboxes, warmups: WarmupLoop, sessions: _Sessions, *, loop: asyncio.AbstractEventLoop
) -> kopf.OperatorRegistry:
    """Return the event handlers, which call `ended` and `warmups` in `loop`; kopf's other handlers would annotate resources."""
    handlers = kopf.OperatorRegistry()

    @kopf.on.login(registry=handlers)
    async def login(**_: Any) -> kopf.AiohttpSession:
        return await sessions.login()

    @kopf.on.event(names.GROUP, names.VERSION, names.SANDBOX_PLURAL, registry=handlers)
    async def sandbox(event: Any, **_: Any) -> None:
        try:
            resource = msgspec.convert(event["object"], Sandbox)
        except msgspec.ValidationError as error:
            _log.warning("ignored an invalid Sandbox: %s", error)
            return
        loop.call_soon_threadsafe(ended.gone if event["type"] == "DELETED" else ended.seen, resource)

    @kopf.on.event(names.GROUP, names.VERSION, names.WARMUP_PLURAL, registry=handlers)
    async def warmup(event: Any, **_: Any) -> None:
        try:
            resource = msgspec.convert(event["object"], ImageWarmup)
        except msgspec.ValidationError as error:
            _log.warning("ignored an invalid ImageWarmup: %s", error)
            return
        loop.call_soon_threadsafe(warmups.gone if event["type"] == "DELETED" else warmups.seen, resource)

    return handlers


async def run(
    ended: EndedSandboxes, warmups: WarmupLoop, watches: KopfWatches, *, access: Access, namespace: str
) -> None:
    """Run kopf until cancelled. Raises LifecycleFailed.

    kopf runs in a thread with an event loop of its own: as it ends, it cancels all tasks of its loop that are newer.
    """
    loop = asyncio.get_running_loop()
    sessions = _Sessions(
        access,
        trace=_trace(watches, loop=loop),
        failed=functools.partial(loop.call_soon_threadsafe, watches.login_failed),
    )
    handlers = _registry(ended, warmups, sessions, loop=loop)
    stop = threading.Event()

    async def operate() -> None:
        cutting = asyncio.create_task(_cut_what_hangs())
        try:
            await _operate(handlers, namespace=namespace, stop=stop)
        finally:
            cutting.cancel()
            # kopf waits for it in a thread, which its loop would wait for after a failure: for ever.
            stop.set()
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
    raise LifecycleFailed("kopf ended without being stopped")


async def _cut_what_hangs() -> None:
    """Cancel kopf's tasks until they end, once its watches have failed.

    kopf cancels each once, which a watch of another resource may lose: kopf would wait for it for ever.
    """
    ours = asyncio.all_tasks()
    watching = True
    while watching:
        await asyncio.sleep(1.0)  # kopf begins its tasks at once
        watching = _WATCHES in {task.get_name() for task in asyncio.all_tasks()}
    while True:
        for task in asyncio.all_tasks() - ours:
            task.cancel()
        await asyncio.sleep(1.0)


async def _operate(handlers: kopf.OperatorRegistry, *, namespace: str, stop: threading.Event) -> None:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = (
        True  # the resources exist from the start; watching CRDs would need more rights
    )
    settings.peering.standalone = True  # the Lease decides who works
    settings.queueing.worker_limit = 64  # else a burst of 10,000 resources would start 10,000 tasks
    # After an event a worker waits so long for another of its resource: by default 5 s, which is 13 resources a second.
    settings.queueing.idle_timeout = 0.05
    settings.process.ultimate_exiting_timeout = None
    await kopf.operator(
        registry=handlers,
        settings=settings,
        namespaces=[namespace],
        standalone=True,
        stop_flag=stop,
        # By default kopf looks up the user's name, which an image's numeric user lacks.
        identity=cast(Any, socket.gethostname()),  # a NewType of str that kopf does not export
    )
