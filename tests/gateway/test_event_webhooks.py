"""Webhooks of events: what is sent to whom and how often, how it is signed, and which targets may be written down."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import itertools
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyqwest import SyncClient, SyncHTTPTransport
from sandlot_contract.ids import SandboxId
from sandlot_contract.statuses import Status
from sandlot_gateway.events.journal import Journal
from sandlot_gateway.events.tenant import OVERLAP
from sandlot_gateway.events.webhooks import sender
from sandlot_gateway.events.webhooks.post import Poster
from sandlot_gateway.events.webhooks.targets import BadTargets, read_targets
from sandlot_gateway.sandboxes import Sandbox, Spec

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


async def test_what_a_target_missed_comes_after_a_restart(
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


async def sent_by(target: Path, journal: Journal, counted: list[str], *, done: Callable[[], bool]) -> None:
    """Run a sender of the target in the file until `done`, which remembers its place beside it."""
    poster = Poster(timeout=15.0, connections=1)
    running = asyncio.create_task(
        sender.Sender(
            read_targets(target)[0],
            journal=journal,
            poster=poster,
            place=target.parent / "place",
            counted=counted.append,
        ).run()
    )
    await until(done)
    running.cancel()
    await asyncio.wait({running})
    await poster.close()


def ready(number: int, *, at: float) -> Sandbox:
    return Sandbox(
        id=SandboxId(f"sbx-{number}"),
        tenant="alpha",
        spec=Spec(name="n", image="host"),
        created_at=at,
        updated_at=at,
        started_at=at,
        status=Status.RUNNING,
    )


@pytest.mark.parametrize("dropped", [0, 1])
async def test_one_of_several_gateways_begins_by_time_and_loses_only_what_was_dropped(
    tmp_path: Path, receiver: Receiver, dropped: int
) -> None:
    now = 1_000_000.0
    journal = Journal(entries=3 - dropped, memory=1 << 20, keep=3600.0, clock=lambda: now)
    for number, age in enumerate((1000, 350, 50)):
        journal.ready(ready(number, at=now - age))
    journal.recovered(known_since=now)
    age = 400 if dropped == 0 else 1000
    (tmp_path / "place").write_text(f"00000000-1-{int(now - age + OVERLAP) * 1000}")
    counted: list[str] = []
    target = written(tmp_path, receiver.port)
    async with receiver.open():
        await sent_by(target, journal, counted, done=lambda: counted.count("delivered") == 2)
    assert set(receiver.ids) == {"sbx-1:ready", "sbx-2:ready"}
    assert counted.count("lost") == dropped


async def test_a_target_that_wants_none_of_many_events_has_a_recent_place(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "LONGEST_PAUSE", 0.1)
    journal = Journal(entries=20_000, memory=1 << 26, keep=3600.0)
    journal.recovered(known_since=0.0)
    numbers = itertools.count()

    def is_remembered() -> bool:
        journal.ready(ready(next(numbers), at=1.0))
        return (tmp_path / "place").exists()

    target = written(tmp_path, receiver.port, types=["sandbox.ended"])
    await sent_by(target, journal, [], done=is_remembered)
    assert not receiver.got


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
