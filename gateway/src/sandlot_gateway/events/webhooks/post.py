"""Sends one webhook, over connections that stay open; of the answer only the status counts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from pyqwest import Headers, HTTPTransport, Request

from .targets import Target


class NotSent(Exception):
    """There was no answer in time; the message says why."""


class Poster:
    """TLS, host names and connections are handled outside of the event loop's thread."""

    def __init__(self, *, timeout: float, connections: int) -> None:
        """`timeout`: seconds for an answer; `connections`: to one address at once."""
        self._timeout = timeout
        self._transport = HTTPTransport(
            timeout=timeout,
            connect_timeout=timeout / 3,
            max_connections_per_address=connections,
            pool_max_idle_per_host=connections,
            follow_redirects=False,  # they may lead to addresses that the operator has not written down
            tls_include_system_certs=True,
            enable_otel=False,
        )

    async def post(self, target: Target, body: bytes, headers: Mapping[str, str]) -> int:
        """Return the status. Raises NotSent."""
        fields = {"content-type": "application/json", "user-agent": "sandlot-webhooks", **headers}
        request = Request("POST", target.url, Headers(fields.items()), body)
        try:
            async with asyncio.timeout(self._timeout + 1), await self._transport.execute(request) as answer:
                return answer.status
        except TimeoutError:
            raise NotSent(f"no answer within {self._timeout:g} s") from None
        except Exception as error:  # of a library: its text has the URL, which may have a credential
            raise NotSent(f"{type(error).__name__}, without an answer") from None

    async def close(self) -> None:
        await self._transport.aclose()
