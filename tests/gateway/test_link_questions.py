"""What a gateway asks and answers while a group's sandboxes are not known: bounded, and once for all that wait."""

from __future__ import annotations

import asyncio
import socket

import pytest
from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_gateway import service_links
from sandlot_gateway.webhook_connection import LinkRequest

from tests.gateway.conftest import Running
from tests.gateway.test_service_links import created, link, owner, status
from tests.waiting import until


class Others:
    """Other gateways that take their time."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer = asyncio.Event()

    async def learn_claims(self, tenant: str) -> None:
        self.asked.append(tenant)
        await self.answer.wait()


async def test_links_that_wait_are_counted_and_ask_once(
    box: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_links, "MOST_FROM", 3)
    group = await created(box)
    others = Others()
    links = box.gateway.links
    monkeypatch.setattr(links, "_others", others)
    monkeypatch.setattr(links, "_member", lambda source, name: None)
    waiting = [asyncio.create_task(status(group.agent, "db", 5432)) for _ in range(3)]
    await until(lambda: others.asked)
    await until(lambda: links._counts["from", group.agent.instance_id] == 3)
    assert await status(group.agent, "db", 5432) == 429
    others.answer.set()
    assert await asyncio.gather(*waiting) == [503] * 3
    assert len(others.asked) == 1


async def test_two_live_sandboxes_of_one_service_are_an_error(box: Running) -> None:
    group = await created(box)
    db, web = (box.gateway.directory.get(SandboxId(owner(one))) for one in (group.db, group.web))
    assert db is not None
    assert web is not None
    web.spec.services = db.spec.services
    assert await status(group.agent, "db", 5432) == 409
    async with link(group.agent, "web", 8080) as (found, _, _):
        assert found == 503


async def test_a_sidecar_whose_machine_is_lost_is_noticed(box: Running) -> None:
    accepted: asyncio.Future[LinkRequest] = asyncio.get_running_loop().create_future()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set_result(LinkRequest(InstanceId("i-1"), b"/internal/link?", "", "", reader, writer))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    asked = await accepted
    box.gateway.links.accept(asked)
    sock = asked.writer.get_extra_info("socket")
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 15
    assert (await reader.read(-1)).startswith(b"HTTP/1.1 401 ")
    writer.transport.abort()
    server.close()
