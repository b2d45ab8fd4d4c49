"""Cost of idle sidecars, started by the local backend: private memory each, and wake-ups."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from sandlot_contract.headers import GATEWAY, INSTANCE, SENDER
from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_contract.template import Template
from sandlot_gateway.backends.local.backend import LocalBackend
from sandlot_gateway.backends.local.settings import LocalSettings
from sandlot_gateway.core.backend import Events
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.core.slot import Loss, Phase
from sandlot_gateway.data.pool import HttpPool
from sandlot_gateway.tokens import Tokens

from loadtests.processes import memory, wakeups, with_mark
from loadtests.reading import Reading

COPIES = 10
SETTLE = 15.0  # seconds after the last start: an unused runner exits after some seconds
WINDOW = 10.0  # seconds of counting wake-ups


class _Ready(Events):
    """The gateway's end of the webhook: acknowledges everything and passes on each `ready`."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._news: asyncio.Queue[str | None] = asyncio.Queue()

    async def wait(self, count: int, *, timeout: float = 60.0) -> None:
        """Wait for this many `ready` events. Raises TimeoutError, or RuntimeError if an instance is lost."""
        async with asyncio.timeout(timeout):
            for _ in range(count):
                lost = await self._news.get()
                if lost is not None:
                    raise RuntimeError(lost)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode().lower().split("\r\n")
                headers = dict(line.split(": ", 1) for line in lines if ": " in line)
                body = await reader.readexactly(int(headers["content-length"]))
                instance_id = InstanceId(headers[INSTANCE.lower()])
                proof = self._tokens.webhook_answer(instance_id, headers[SENDER.lower()])
                if b'"ready"' in body:
                    self._news.put_nowait(None)
                writer.write(f"HTTP/1.1 204 No Content\r\n{GATEWAY}: {proof}\r\n\r\n".encode())
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def instance_found(self, instance: Instance, state: dict[str, Any]) -> None:
        raise AssertionError("a fresh state directory holds no instance")

    def instance_lost(self, instance_id: InstanceId, loss: Loss) -> None:
        self._news.put_nowait(f"{instance_id}: {loss.verdict}: {loss.message}")

    def phase(self, instance_id: InstanceId) -> Phase | None:
        return Phase.WARM

    def owner(self, instance_id: InstanceId) -> SandboxId | None:
        return None

    def knows(self, sandbox_id: SandboxId) -> bool:
        return False

    def warm_count(self, pool: str) -> int:
        return 0

    def give_up(self, pool: str) -> InstanceId | None:
        return None


async def idle() -> dict[str, Reading]:
    """Measure `sidecar_memory` (MiB) and `sidecar_wakeups` (all copies together)."""
    tokens = Tokens(b"the key of the load test, no secret")
    events = _Ready(tokens)
    with tempfile.TemporaryDirectory(prefix="sandlot-idle-") as name:
        state_dir = Path(name) / "state"
        pool = HttpPool()
        backend = LocalBackend(
            state_dir=state_dir,
            tokens=tokens,
            pool=pool,
            settings=LocalSettings(heartbeat=0.0),
        )
        backend.acquire()
        server = await asyncio.start_unix_server(events.answer, state_dir / "gateway.sock")
        try:
            await backend.start(events)
            # The first sidecar compiles its modules and keeps that memory: not measured.
            first = await backend.launch(Template(image="host"))
            await events.wait(1)
            await backend.destroy(first.id)
            for _ in range(COPIES):
                await backend.launch(Template(image="host"))
            await events.wait(COPIES)
            return await _measure(str(state_dir))
        finally:
            await backend.destroy_all(timeout=60)
            await backend.stop(timeout=60)
            await pool.close()
            server.close()


async def _measure(mark: str) -> dict[str, Reading]:
    await asyncio.sleep(SETTLE)
    pids = with_mark(mark)
    found = memory(pids)
    before = wakeups(pids)
    await asyncio.sleep(WINDOW)
    count = wakeups(pids) - before
    mib = 1 << 20
    return {
        "sidecar_memory": Reading(
            value=found.private / COPIES / mib,
            parts={
                "copies": str(COPIES),
                "processes each": f"{len(pids) / COPIES:.1f}",
                "besides, shared among its own processes": f"{found.shared / COPIES / mib:.2f} MiB",
                "resident, counted in every process": f"{found.resident / COPIES / mib:.1f} MiB",
            },
        ),
        "sidecar_wakeups": Reading(
            value=float(count),
            parts={"copies": str(COPIES), "window": f"{WINDOW:g} s", "processes": str(len(pids))},
        ),
    }
