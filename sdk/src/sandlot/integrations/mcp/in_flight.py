"""The requests that one gateway answers now: a bounded share for each tenant, and an end for those of a session, or all."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import Any

from sandlot.integrations.mcp.wire import RequestId

PER_TENANT = 64  # requests at once
TOTAL = 512
UNREAD_PER_TENANT = 16 << 20  # bytes of results that clients have not read yet
UNREAD_TOTAL = 64 << 20
_SMALL = 64 << 10  # bytes of a result that is not counted
_CUT = 1.0  # seconds for cancelled calls to end: a command is killed, a sandbox deleted


class Full(Exception):
    """So many requests run that another must wait."""


@dataclass(eq=False)
class Request:
    """One that runs; `session` is the id that its client sent, or empty."""

    tenant: str
    _: KW_ONLY
    session: str = ""
    id: RequestId | None = None
    task: asyncio.Future[Any] | None = None
    unread: int = 0  # bytes of its result


class InFlight:
    """Only of this process: another gateway has its own."""

    def __init__(self) -> None:
        self.draining = False
        self._requests: set[Request] = set()
        self._counted: Counter[str] = Counter()
        self._ended = asyncio.Event()

    @contextmanager
    def one(self, tenant: str) -> Generator[Request]:
        """Count a request as long as the block runs. Raises Full."""
        if self._counted[tenant] >= PER_TENANT or len(self._requests) >= TOTAL:
            raise Full(
                f"too many requests to /mcp are running ({PER_TENANT} of one tenant, {TOTAL} in all): try again"
            )
        request = Request(tenant)
        self._requests.add(request)
        self._counted[tenant] += 1
        try:
            yield request
        finally:
            self._requests.discard(request)
            self._counted[tenant] -= 1
            if not self._counted[tenant]:
                del self._counted[tenant]
            self._ended.set()

    def hold(self, request: Request, size: int) -> bool:
        """Count a result of `size` bytes until the request ends; return False if there is no room for it."""
        if size > _SMALL:
            everyones = sum(one.unread for one in self._requests)
            tenants = sum(one.unread for one in self._requests if one.tenant == request.tenant)
            if everyones + size > UNREAD_TOTAL or tenants + size > UNREAD_PER_TENANT:
                return False
            request.unread = size
        return True

    def cancel(self, session: str, identity: RequestId) -> None:
        """Cancel the requests with this id of this session."""
        _cancel(request for request in self._requests if (request.session, request.id) == (session, identity))

    async def end(self, session: str) -> None:
        """Cancel the requests of a session, and wait for their ends."""
        tasks = _cancel(request for request in self._requests if session and request.session == session)
        if tasks:
            await asyncio.wait(tasks)

    async def drain(self, timeout: float) -> None:
        """Wait up to `timeout` seconds for the requests that run, then cancel them."""
        self.draining = True
        await self._none_within(timeout)
        _cancel(self._requests)
        await self._none_within(_CUT)

    async def _none_within(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                while self._requests:
                    self._ended.clear()
                    await self._ended.wait()
        except TimeoutError:
            return


def _cancel(requests: Iterable[Request]) -> set[asyncio.Future[Any]]:
    tasks = {request.task for request in requests if request.task is not None and not request.task.done()}
    for task in tasks:
        task.cancel()
    return tasks
