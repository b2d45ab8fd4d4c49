"""Webhooks of events: what is sent to whom and how often, how it is signed, and which targets may be written down."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyqwest import SyncClient, SyncHTTPTransport
from sandlot_gateway.events.webhooks import sender
from sandlot_gateway.events.webhooks.targets import BadTargets, read_targets

from tests.gateway.conftest import Running, running
from tests.gateway.machine import Machine
from tests.ports import free_port
from tests.waiting import until

KEYS = [os.urandom(32), os.urandom(24)]


@dataclass
class Receiver:
    """What a target got; it answers with `statuses` in turn, and with 204 after them."""

    port: int
    statuses: list[int] = field(default_factory=list[int])
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list[tuple[dict[str, str], bytes]])

    @property
    def ids(self) -> list[str]:
        return [headers["webhook-id"] for headers, _ in self.got]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (line := await reader.readline()).startswith(b"POST /hook?k=1 "):
                headers: dict[str, str] = {}
                while line := (await reader.readline()).strip():
                    name, _, value = line.decode().partition(": ")
                    headers[name.lower()] = value
                self.got.append((headers, await reader.readexactly(int(headers["content-length"]))))
                status = self.statuses.pop(0) if self.statuses else 204
                writer.write(b"HTTP/1.1 %d x\r\ncontent-length: 0\r\nlocation: /other\r\n\r\n" % status)
            assert not line, line
        finally:
            writer.close()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self.serve, "127.0.0.1", self.port)
        async with server:
            yield


def written(directory: Path, port: int, **more: Any) -> Path:
    (directory / "hook.secret").write_text(
        "".join(f"whsec_{base64.b64encode(key).decode()}\n" for key in KEYS), "ascii"
    )
    target = {
        "name": "trainer",
        "tenant": "alpha",
        "url": f"http://127.0.0.1:{port}/hook?k=1",
        "secret_file": "hook.secret",
        **more,
    }
    (directory / "webhooks.json").write_text(json.dumps([target]))
    return directory / "webhooks.json"


@pytest.fixture(scope="module", autouse=True)
def _runtime() -> None:
    """The HTTP client's threads and their descriptors, which the process keeps from its first request on."""
    with pytest.raises(ConnectionError):
        SyncClient(SyncHTTPTransport(enable_otel=False)).get(f"http://127.0.0.1:{free_port()}/")


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Receiver:
    monkeypatch.setattr(sender, "FIRST_PAUSE", 0.05)
    return Receiver(free_port())


async def deleted(box: Running, sandbox_id: str) -> None:
    assert (await box.client.delete(f"/api/v1/sandbox/{sandbox_id}")).status_code == 200


async def test_a_target_gets_its_tenants_events_signed_until_it_takes_them(
    state_dir: Path, machine: Machine, tmp_path: Path, receiver: Receiver
) -> None:
    file = written(tmp_path, receiver.port, labels=["l"])
    receiver.statuses = [503, 302, 429]
    async with receiver.open(), running(state_dir, machine, event_webhooks_file=file) as box:
        other = {"docker_image": "host", "labels": ["l"]}
        await box.client.post("/api/v1/sandbox", json=other, headers=box.as_tenant("key-b"))
        await box.create()
        made = await box.create(labels=["l"])
        await until(lambda: len(receiver.got) == 4)
        await deleted(box, made["id"])
        await until(lambda: len(receiver.got) == 5)
        assert receiver.ids == [f"{made['id']}:ready"] * 4 + [f"{made['id']}:ended"]
        for headers, body in receiver.got:
            content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
            signatures = [base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()) for key in KEYS]
            assert headers["webhook-signature"] == " ".join(f"v1,{one.decode()}" for one in signatures)
            assert abs(int(headers["webhook-timestamp"]) - box.gateway.journal.now()) < 200
            assert json.loads(body)["id"] == headers["webhook-id"]
        assert json.loads(receiver.got[-1][1])["data"]["verdict"] == "deleted"

        async def is_counted() -> bool:
            metrics = await box.metrics()
            counter = "sandlot_event_webhooks_total"
            return (
                f'{counter}{{outcome="delivered"}} 2.0' in metrics
                and f'{counter}{{outcome="retried"}} 3.0' in metrics
            )

        await until(is_counted)


async def test_what_a_target_missed_comes_after_a_restart_and_nothing_twice(
    state_dir: Path, machine: Machine, tmp_path: Path, receiver: Receiver
) -> None:
    file = written(tmp_path, receiver.port, types=["sandbox.ended"])
    async with running(state_dir, machine, event_webhooks_file=file) as box:
        async with receiver.open():
            first = await box.create()
            await deleted(box, first["id"])
            place = state_dir / "event-webhooks" / "trainer"
            await until(place.exists)
        missed = await box.create()
        await deleted(box, missed["id"])
    async with receiver.open(), running(state_dir, machine, event_webhooks_file=file):
        await until(lambda: f"{missed['id']}:ended" in receiver.ids)
    assert set(receiver.ids) == {f"{first['id']}:ended", f"{missed['id']}:ended"}


async def test_a_target_that_is_dead_loses_what_is_not_kept_and_holds_up_nothing(
    state_dir: Path, machine: Machine, tmp_path: Path, receiver: Receiver
) -> None:
    file = written(tmp_path, receiver.port)
    async with running(state_dir, machine, event_webhooks_file=file, events_kept=10) as box:
        made = [(await box.create())["id"] for _ in range(30)]
        async with receiver.open():
            await until(lambda: f"{made[-1]}:ready" in receiver.ids)
        counter = 'sandlot_event_webhooks_total{outcome="lost"}'
        lost = next(line for line in (await box.metrics()).splitlines() if line.startswith(counter))
        assert float(lost.split()[-1]) > 0


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"url": "ftp://host/x"}, "url: "),
        ({"url": "https://user@host/x"}, "url: "),
        ({"url": "https://host/a b"}, "url: "),
        ({"name": ".."}, "name: "),
        ({"name": "a/b"}, "name: "),
        ({"tenant": "a b"}, "tenant: "),
        ({"types": ["sandbox.exploded"]}, "types"),
        ({"secret_file": "missing"}, "missing: FileNotFoundError"),
        ({"secret_file": "webhooks.json"}, "must have lines of `whsec_`"),
        ({"secret": "whsec_x"}, "secret"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, more: dict[str, Any], why: str) -> None:
    file = written(tmp_path, 1, **more)
    with pytest.raises(BadTargets) as refused:
        read_targets(file)
    assert why in str(refused.value)
    assert str(file) in str(refused.value)
