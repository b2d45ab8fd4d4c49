"""Sends a client's requests to the gateway that this code runs in, whatever address the gateway tells its clients."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Mapping
from dataclasses import replace

from sandlot._protocol.http1 import Origin, split_url
from sandlot._protocol.messages import Request, Response
from sandlot._transport_async.body import AsyncBody
from sandlot._transport_async.pool import Pool
from sandlot._transport_async.transport import AsyncTransport


class LoopbackTransport(AsyncTransport):
    """Connects to `address`, with the Host of the request, so that addresses in responses are those of outside."""

    def __init__(self, address: str, *, public_url: str | None, headers: Mapping[str, str]) -> None:
        """Take the URLs of the gateway here and outside; the path of `public_url` exists only outside.

        `headers` come with each request: without them a draining gateway would refuse the calls of its own tools.
        """
        super().__init__()
        self._more = headers
        self._address, _ = split_url(address)
        self._outside = "" if public_url is None else split_url(public_url)[1]

    async def request(self, request: Request) -> Response:
        return await super().request(self._inside(request))

    async def open(
        self,
        request: Request,
        *,
        source: Callable[[], AsyncIterable[bytes]] | None = None,
        length: int | None = None,
    ) -> AsyncBody:
        return await super().open(self._inside(request), source=source, length=length)

    def _inside(self, request: Request) -> Request:
        target = request.target
        if self._outside and target.startswith(f"{self._outside}/"):
            target = target.removeprefix(self._outside)
        return replace(request, target=target, headers={**request.headers, **self._more})

    def _pool(self, origin: Origin) -> Pool:
        return super()._pool(self._address)
