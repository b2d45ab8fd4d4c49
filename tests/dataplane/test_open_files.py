"""Near the limit of open files the gateway gives up idle connections first, then answers new callers that it is busy."""

from __future__ import annotations

import json
import os

import pytest
from sandlot_gateway.data.open_files import OpenFiles, Room
from sandlot_gateway.data.pool import PoolSettings

from tests.dataplane.upstreams import echo


def opened(further: int = 0) -> int:
    """The number that the next file gets, or one after `further` others: the numbers of closed files come first."""
    files = [os.open("/dev/null", os.O_RDONLY) for _ in range(further + 1)]
    for file in files:
        os.close(file)
    return files[-1]


@pytest.mark.parametrize(
    ("number", "room"),
    [(0, Room.ENOUGH), (599, Room.ENOUGH), (600, Room.FEW), (629, Room.FEW), (630, Room.NONE)],
)
def test_the_room_after_a_file_is_told_by_its_number(number: int, room: Room) -> None:
    assert OpenFiles(640).room_after(number) is room


async def test_a_new_connection_near_the_limit_costs_the_idle_ones(pool, upstream) -> None:
    servers = [await upstream(echo(), tcp=True) for _ in range(5)]
    # Each connection has two files here. The last of these is the first one near the limit.
    one = pool(max_files=opened(8) * 16 // 15)
    for count, server in enumerate(servers[:4], 1):
        await one.fetch(server.address, "GET", "/")
        assert one.idle_connections == count
    await one.fetch(servers[4].address, "GET", "/")
    assert one.idle_connections == 1


async def test_a_caller_is_told_that_the_gateway_is_busy_while_it_has_files_for_that(ready, client) -> None:
    gw, server = await ready(echo(), pool=PoolSettings(max_files=opened()))
    caller = await client(gw)
    caller.send("POST", "/sbx/sb-1/exec", body=b"{}", token=gw.token)
    status, headers, body = await caller.answer()
    assert (status, json.loads(body)["error"], headers["connection"]) == (503, "busy", "close")
    assert server.connections == 0
