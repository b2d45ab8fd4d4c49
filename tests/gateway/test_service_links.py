"""Links between services of a group: who gets one, what a group may declare, and what ends a link."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from sandlot_gateway import service_links

from tests.gateway.conftest import Running
from tests.gateway.sidecars import StubSidecar
from tests.waiting import until

HOST = {"docker_image": "host", "network": "none"}
DB = {**HOST, "service": "db", "ports": [5432, 5433]}
WEB = {**HOST, "service": "web", "ports": [8080]}


@dataclass
class Group:
    """The sidecars of a group's sandboxes: a database, a web server, and one that is no service."""

    db: StubSidecar
    web: StubSidecar
    agent: StubSidecar


async def grouped(box: Running, members: list[dict[str, Any]]) -> dict[str, Any]:
    answer = await box.client.post("/api/v1/group", json={"members": members})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def created(box: Running) -> Group:
    group = await grouped(box, [DB, WEB, HOST])
    assert [one["service"] for one in group["sandboxes"]] == ["db", "web", None]
    found = Group(*(box.machine.of_sandbox(one["id"]) for one in group["sandboxes"]))
    found.db.listens = {5432}
    return found


def owner(sidecar: StubSidecar) -> str:
    assert sidecar.claim is not None
    return sidecar.claim["sandbox_id"]


@asynccontextmanager
async def link(
    sidecar: StubSidecar,
    service: str,
    port: object,
    *,
    of: str | None = None,
    credential: str | None = None,
    age: int = 0,
    signed: str | None = None,
) -> AsyncIterator[tuple[int, asyncio.StreamReader, asyncio.StreamWriter]]:
    """What the gateway answers this sidecar, and the connection.

    `of`: the sandbox that it says it asks for. `signed`: another target than the request's.
    """
    assert sidecar.webhook is not None
    reader, writer = await asyncio.open_unix_connection(sidecar.webhook.removeprefix("unix:"))
    sender = hmac.new(sidecar.token.encode(), b"webhook", hashlib.sha256).hexdigest()
    target = f"/internal/link?sandbox={of or owner(sidecar)}&service={service}&port={port}&at={int(time.time()) - age}"
    signature = hmac.new(sidecar.token.encode(), (signed or target).encode(), hashlib.sha256).hexdigest()
    lines = [
        f"POST {target} HTTP/1.1",
        "Host: sandlot",
        f"X-Sandlot-Instance: {sidecar.instance_id}",
        f"X-Sandlot-Sender: {credential or sender}",
        f"X-Sandlot-Signature: sha256={signature}",
        "Connection: Upgrade",
        "Upgrade: sandlot-tcp",
    ]
    try:
        writer.write("\r\n".join([*lines, "", ""]).encode())
        async with asyncio.timeout(30):
            head = await reader.readuntil(b"\r\n\r\n")
        yield int(head.split()[1]), reader, writer
    finally:
        writer.transport.abort()


async def status(sidecar: StubSidecar, service: str, port: object, **options: Any) -> int:
    async with link(sidecar, service, port, **options) as (found, _, _):
        return found


async def test_only_members_of_the_group_are_connected(box: Running) -> None:
    group, other = await created(box), await created(box)
    outsider = box.machine.of_sandbox((await box.create(network="none"))["id"])
    for source, itself in ((group.agent, group.db), (group.web, group.db), (other.agent, other.db)):
        async with link(source, "db", 5432) as (found, reader, writer):
            assert found == 101
            name = itself.instance_id.encode()
            assert await reader.readexactly(len(name)) == name, "its own group's"
            writer.write(b"x" * 1_000_000)
            writer.write_eof()
            assert await reader.read(-1) == b"x" * 1_000_000
    assert await status(group.agent, "db", 5433) == 502, "nothing listens"
    assert await status(group.agent, "db", 6000) == 404, "not declared"
    assert await status(group.agent, "web", 5432) == 404, "another's port"
    assert await status(group.agent, "nobody", 5432) == 404
    assert await status(group.agent, "db", "x") == 404
    assert await status(outsider, "db", 5432) == 404
    assert await status(outsider, "db", 5432, of=owner(group.agent)) == 404, "another's sandbox"
    assert await status(other.agent, "db", 5432, of=owner(group.agent)) == 404, "another's sandbox"
    assert await status(group.agent, "db", 5432, of="sb-unknown") == 503


async def test_a_stranger_gets_no_link(box: Running) -> None:
    group = await created(box)
    assert await status(group.agent, "db", 5432, credential="forged") == 401
    assert (
        await status(group.agent, "db", 5432, credential=hmac.new(b"x", b"webhook", "sha256").hexdigest())
        == 401
    )


async def test_a_link_needs_a_new_signature_of_its_own(box: Running) -> None:
    """What an impostor at the gateway's address has read is of no use to it."""
    group = await created(box)
    for age in (-100, 100):
        assert await status(group.agent, "db", 5432, age=age) == 101
    for age in (-200, 200):
        assert await status(group.agent, "db", 5432, age=age) == 401
    assert await status(group.agent, "db", 5432, signed="webhook") == 401


@pytest.mark.parametrize("which", ["db", "agent"])
async def test_a_link_ends_with_either_sandbox(box: Running, which: str) -> None:
    group = await created(box)
    async with link(group.agent, "db", 5432) as (found, reader, _):
        assert found == 101
        gone = getattr(group, which)
        sandbox_id = owner(gone)
        assert (await box.client.delete(f"/api/v1/sandbox/{sandbox_id}")).status_code == 200
        async with asyncio.timeout(30):
            assert (await reader.read(-1)) == group.db.instance_id.encode()
    assert await status(group.agent, "db", 5432, of=owner(group.agent)) == 404
    if which == "db":
        assert await status(group.web, "db", 5432) == 404


@pytest.mark.parametrize(
    ("name", "sources"),
    [
        ("MOST_FROM", ["agent"]),
        ("MOST_TO", ["agent", "web"]),
        ("MOST", ["agent", "web"]),
        ("MOST_OF_TENANT", ["agent", "web"]),
    ],
)
async def test_links_of_a_sandbox_are_bounded(
    box: Running, monkeypatch: pytest.MonkeyPatch, name: str, sources: list[str]
) -> None:
    monkeypatch.setattr(service_links, name, 2)
    group = await created(box)
    first, last = getattr(group, sources[0]), getattr(group, sources[-1])
    async with link(first, "db", 5432) as (one, _, _), link(last, "db", 5432) as (two, _, _):
        assert (one, two) == (101, 101)
        assert await status(last, "db", 5432) == 429

    async def again() -> bool:
        return await status(last, "db", 5432) == 101

    await until(again)


@pytest.mark.parametrize(
    ("members", "field", "message"),
    [
        ([{**DB, "service": "My_DB"}], "members.0.service", "must be 1 to 63 of the characters"),
        ([{**DB, "service": "localhost"}], "members.0.service", "not localhost"),
        ([{**HOST, "ports": [1]}], "members.0", "ports: other sandboxes need a name"),
        ([{**DB, "ports": [1, 1]}], "members.0", "ports: has a port twice"),
        ([{**DB, "ports": list(range(1, 18))}], "members.0.ports", "at most 16"),
        ([{**DB, "ports": [65536]}], "members.0.ports.0", "less than or equal to 65535"),
        ([{**DB, "ports": [8700]}], "members.0", "ports: 8700 is a port of Sandlot's own"),
        ([{**DB, "count": 2}], "members.0", "count: a service is one sandbox"),
        ([DB, DB], "members", "members.1.service: 'db' is members.0, too"),
        ([DB, {**WEB, "ports": [5432]}], "members", "members.1.ports: 5432 is a port of 'db', too"),
        (
            [
                {**HOST, "service": f"s{number}", "ports": list(range(number * 16 + 1, number * 16 + 17))}
                for number in range(5)
            ],
            "members",
            "their services have 80 ports, and a group at most 64",
        ),
        ([DB, {**HOST, "checkpoint_id": "ck-1"}], "members", "members.1.checkpoint_id: cannot be restored"),
        (
            [DB, {**HOST, "network": "full"}],
            "members.1.network",
            "services need a network of the sandbox's own",
        ),
    ],
    ids=[
        "name",
        "localhost",
        "ports alone",
        "twice",
        "many",
        "range",
        "sidecar",
        "count",
        "same name",
        "same port",
        "all ports",
        "checkpoint",
        "network",
    ],
)
async def test_what_a_group_cannot_declare(
    box: Running, members: list[dict[str, Any]], field: str, message: str
) -> None:
    answer = await box.client.post("/api/v1/group", json={"members": members})
    assert answer.status_code == 422, answer.text
    assert message in answer.text
    assert field in answer.text
