"""The service of checkpoints over stub sidecars: what it lets go of, and what a document says after an unexpected error."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_gateway.checkpoints import temporary as temporaries
from sandlot_gateway.checkpoints.checkpoint import Checkpoint, State
from sandlot_gateway.checkpoints.copies_in_use import CopiesInUse
from sandlot_gateway.checkpoints.rules import StoreLimits
from sandlot_gateway.checkpoints.service import Checkpoints
from sandlot_gateway.checkpoints.shared import SharedCopies
from sandlot_gateway.checkpoints.store import Store
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.data.pool import HttpPool
from sandlot_gateway.sandboxes import Sandbox, Spec

from tests.gateway.sidecars import StubSidecar, new_instance_id
from tests.waiting import until

SIZE = 70


class Sidecar(StubSidecar):
    """One that shares a copy of its files, which is a file here."""

    hold_restore: asyncio.Event | None = None  # it has the files then
    restores_seen = 0

    async def _answer(
        self, method: str, target: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, Any]:
        if target.startswith("/v1/restore") and self.hold_restore is not None:
            self.restores_seen += 1
            await self.hold_restore.wait()
        if not target.startswith("/v1/share"):
            return await super()._answer(method, target, headers, body)
        if method == "DELETE":
            return 200, {}
        info = os.stat(self.path.parent)
        where = {"namespace": str(self.path.parent), "device": info.st_dev, "inode": info.st_ino}
        return 200, {"entries": 1, "bytes": SIZE, **(where if method == "POST" else {})}


class Parts:
    def __init__(self, directory: Path, sidecar: Sidecar, pool: HttpPool, limits: StoreLimits) -> None:
        self.directory = directory / "store"
        self.sidecar = sidecar
        in_use = CopiesInUse(directory / "copies", users=lambda: ())
        shared = SharedCopies(in_use, possible=lambda: True)
        self.store = Store(self.directory, limits=limits)
        self.checkpoints = Checkpoints(self.store, pool=pool, max_bytes=1 << 20, shared=shared)
        spec = Spec(name="box", image="host")
        self.sandbox = Sandbox(id=SandboxId("sb-1"), tenant="a", spec=spec, created_at=1.0, updated_at=1.0)
        self.instance = Instance(
            InstanceId(sidecar.instance_id), spec.template(), sidecar.address, sidecar.token
        )

    async def made(self, *, lasts: float | None = None) -> Checkpoint:
        begun = await self.checkpoints.create(self.sandbox, self.instance, lasts=lasts)
        found = await self.checkpoints.settled("a", begun.id)
        assert found is not None
        return found


Started = Callable[[StoreLimits], Any]


@pytest.fixture
def started(tmp_path: Path) -> Started:
    @asynccontextmanager
    async def parts(limits: StoreLimits) -> AsyncIterator[Parts]:
        sidecar = Sidecar(instance_id=new_instance_id(), token="t", directory=tmp_path)
        await sidecar.start()
        pool = HttpPool()
        made = Parts(tmp_path, sidecar, pool, limits)
        try:
            yield made
        finally:
            await made.checkpoints.close(timeout=0.0)
            await pool.close()
            await sidecar.close()

    return parts


async def deleted_elsewhere(parts: Parts, made: Checkpoint) -> None:
    Store(parts.directory, limits=StoreLimits()).delete(made)


async def expired(parts: Parts, made: Checkpoint) -> None:
    made.expires_at = time.time() - 1.0
    parts.store.update(made)
    assert await parts.checkpoints.of_tenant("a") == []


@pytest.mark.parametrize("ends", [deleted_elsewhere, expired], ids=["elsewhere", "expired"])
@pytest.mark.parametrize("looks", ["expire", "create"])
async def test_a_copy_that_something_else_deleted_is_let_go(started: Started, ends: Any, looks: str) -> None:
    async with started(StoreLimits()) as parts:
        made = await parts.made(lasts=600.0)
        assert (made.state, made.shared) == (State.DURABLE, True)
        await ends(parts, made)
        assert [one.id for one in parts.store.deleted()] == [made.id]  # its gateway holds it
        if looks == "expire":
            await parts.checkpoints.expire()
            assert list(parts.directory.iterdir()) == []
        else:
            assert (await parts.made()).state is State.DURABLE
        assert parts.store.deleted() == []


async def test_a_restore_that_waits_for_its_turn_has_nothing_open(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with started(StoreLimits()) as parts:
        made = await parts.made()
        parts.sandbox.spec.checkpoint = made.id
        opened: list[Checkpoint] = []
        open_archive = parts.store.open

        def noted(checkpoint: Checkpoint) -> Any:
            opened.append(checkpoint)
            return open_archive(checkpoint)

        monkeypatch.setattr(parts.store, "open", noted)
        parts.sidecar.hold_restore = asyncio.Event()
        restores = [
            asyncio.create_task(parts.checkpoints.restore(parts.sandbox, parts.instance)) for _ in range(7)
        ]
        await until(lambda: parts.sidecar.restores_seen == 4)
        assert len(opened) == 4
        parts.sidecar.hold_restore.set()
        await asyncio.gather(*restores)
        assert len(opened) == 7


async def test_a_delete_that_fails_still_stops_the_writer(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stale(checkpoint: Checkpoint) -> None:
        raise OSError(errno.ESTALE, "stale file handle")

    async with started(StoreLimits()) as parts:
        parts.sidecar.hold_layer = asyncio.Event()  # never set: its files do not come
        made = await parts.checkpoints.create(parts.sandbox, parts.instance)
        await until(lambda: parts.sidecar.layers_seen == 1)
        monkeypatch.setattr(parts.store, "delete", stale)
        with pytest.raises(OSError, match="stale"):
            await parts.checkpoints.delete(made)
        found = await asyncio.wait_for(parts.checkpoints.settled("a", made.id), 30)
        assert found is not None
        assert found.state is State.FAILED


async def test_an_unexpected_error_is_a_failure_with_its_reason(started: Started) -> None:
    measured: list[float] = []

    def copies() -> list[tuple[str, int]]:
        measured.append(time.monotonic())
        if len(measured) > 1:
            raise RuntimeError("dictionary changed size during iteration")
        return []

    # So that the archive does not fit, and all is measured again.
    async with started(StoreLimits(total_bytes=1, copies=copies)) as parts:
        made = await parts.made()
        assert len(measured) == 2
        assert made.state is State.FAILED
        assert made.error is not None
        assert made.error.startswith("an internal error of the gateway")


async def test_an_unforeseen_failure_of_one_look_for_expired_checkpoints_ends_no_later_look(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    async def expire() -> float | None:
        nonlocal looks
        looks += 1
        if looks == 1:
            raise ValueError("a document that is none")
        return None

    monkeypatch.setattr(temporaries, "_LOOK_EVERY", 0.01)
    async with started(StoreLimits()) as parts:
        monkeypatch.setattr(parts.checkpoints, "expire", expire)
        temporary = temporaries.Temporary(parts.checkpoints)
        temporary.start()
        try:
            await until(lambda: looks >= 2)
        finally:
            await temporary.close()
