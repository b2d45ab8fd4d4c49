"""A stream that is left unread, although it has arrived whole, does not silence its connection."""

from __future__ import annotations

import asyncio

from sandlot import AsyncClient, AsyncSandbox
from sandlot._protocol.messages import with_query

from tests.sdk.service.server import Service
from tests.waiting import SECONDS, until


async def test_a_connection_whose_last_response_was_left_unread_is_read_again(service: Service) -> None:
    async with (
        AsyncClient(url=service.url, api_key=service.api_key) as client,
        await AsyncSandbox.create(client=client) as box,
    ):
        await box.files.write("/tmp/file", b"x" * 300_000)
        body = await box._plane.open("GET", with_query("/files", {"path": "/tmp/file"}))
        await until(lambda: body._connection.parser.done)
        await body.aclose()
        async with asyncio.timeout(SECONDS):
            assert await box.files.exists("/tmp/file")
