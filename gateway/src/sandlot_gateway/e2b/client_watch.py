"""Ends the reading of an op's stream when its client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sandlot_gateway.data.answers import Receive
from sandlot_gateway.data.conn import Connection
from sandlot_gateway.data.disconnects import wait_for_disconnect
from sandlot_gateway.data.errors import ClientGone, UpstreamError
from sandlot_gateway.data.pool import HttpPool


class Client:
    gone = False


@asynccontextmanager
async def cut_without_client(
    pool: HttpPool, connection: Connection, receive: Receive
) -> AsyncIterator[Client]:
    """Close the connection as soon as the client leaves, else release it after the block. Raises ClientGone."""
    watching = asyncio.get_running_loop().create_task(wait_for_disconnect(receive))
    client = Client()

    def cut(_: object) -> None:
        connection.close()  # which tells the sidecar

    watching.add_done_callback(cut)
    try:
        yield client
    except UpstreamError as error:
        if watching.done():
            raise ClientGone from error
        raise
    finally:
        client.gone = watching.done()
        watching.remove_done_callback(cut)  # another request may use the connection from here on
        watching.cancel()
        pool.release(connection, reusable=not client.gone)
        await asyncio.wait([watching])
