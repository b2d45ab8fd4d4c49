"""What TLS between gateway and sidecar costs: commands and files through a gateway process, with and without it."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_gateway.data.pool import HttpPool, PoolSettings
from sandlot_gateway.tokens import Tokens
from sandlot_grade.report.scale import seconds as as_time
from sandlot_grade.report.stats import median

from loadtests.gateway.data_plane_server import KEY
from loadtests.gateway.request_rate import started
from loadtests.processes import memory
from loadtests.reading import Reading
from tests.ports import free_port
from tests.sidecar.support import Sidecar
from tests.sidecar.tls_sidecar import TlsSidecar

ROWS = ("exec_encrypted",)
_ROUNDS, _BATCH, _FILES = 25, 16, 5
_SIZE = 64 << 20
_COMMAND = b'{"command":"true","timeout":30}'
_MARGIN = 512 << 20


async def encrypted() -> dict[str, Reading]:
    """Measure p50 of exec with TLS over p50 without, in alternating batches, and the rates of a 64 MiB file."""
    tokens = Tokens(KEY)
    root = {"disk": _MARGIN}
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sandlot-encrypted-")))
        port = free_port()
        plain = Sidecar(instance_id=_instance(0), listen=f"127.0.0.1:{port}", root=root)
        await plain.reconnect(f"http://127.0.0.1:{port}")
        coded = TlsSidecar(directory, instance_id=_instance(1), root=root)
        for number, box in enumerate((plain, coded)):
            stack.push_async_callback(box.close)
            await box.start()
            sandbox_id = _sandbox(number)
            box.token = tokens.sandbox(_instance(number), 1, sandbox_id)
            await box.claim(sandbox_id=sandbox_id)
        idle = [memory(sorted(box.tree() | {box.pid})).private for box in (plain, coded)]
        listen = free_port()
        gateway = ["-m", "loadtests.gateway.data_plane_server", "--listen", str(listen), "--sandboxes", "2"]
        gateway += ["--address", f"127.0.0.1:{port}", "--address", coded.address]
        stack.enter_context(started([*gateway, "--tls", str(coded.gateway_files)], core=None))
        pool = HttpPool(settings=PoolSettings(max_fetch=_SIZE))
        stack.push_async_callback(pool.close)
        sides = [_Side(pool, f"127.0.0.1:{listen}", number, tokens) for number in range(2)]
        return {"exec_encrypted": await _compare(sides, idle)}


class _Side:
    """One of the two sandboxes, called through the gateway."""

    def __init__(self, pool: HttpPool, gateway: str, number: int, tokens: Tokens) -> None:
        self._pool = pool
        self._gateway = gateway
        self._path = f"/sbx/{_sandbox(number)}"
        token = tokens.client(_sandbox(number), "default", int(time.time()) + 3600)
        self._headers = [("authorization", f"Bearer {token}"), ("content-type", "application/json")]

    async def exec(self) -> None:
        await self._call("POST", "/exec", _COMMAND)

    async def write(self, data: bytes) -> None:
        await self._call("PUT", "/files?path=/tmp/blob", data)

    async def read(self) -> None:
        await self._call("GET", "/files?path=/tmp/blob", b"")

    async def _call(self, method: str, path: str, body: bytes) -> None:
        answer = await self._pool.fetch(
            self._gateway, method, self._path + path, headers=self._headers, body=body, timeout=60
        )
        if answer.status != 200:
            raise RuntimeError(f"{method} {path}: {answer.status} {answer.body[:500]!r}")


async def _compare(sides: list[_Side], idle: list[int]) -> Reading:
    blob = os.urandom(_SIZE)
    times: list[list[float]] = [[], []]
    writes: list[list[float]] = [[], []]
    reads: list[list[float]] = [[], []]
    for side in sides:
        for _ in range(_BATCH):
            await side.exec()
    for _ in range(_ROUNDS):
        for side, found in zip(sides, times, strict=True):
            found += [await _timed(side.exec) for _ in range(_BATCH)]
    for _ in range(_FILES):
        for side, written, fetched in zip(sides, writes, reads, strict=True):
            written.append(await _timed(lambda side=side: side.write(blob)))
            fetched.append(await _timed(side.read))
    plain, coded = (median(one) for one in times)
    return Reading(
        value=coded / plain,
        parts={
            "exec p50, encrypted": as_time(coded),
            "exec p50, plain": as_time(plain),
            "upload, MiB/s": _rates(writes),
            "download, MiB/s": _rates(reads),
            "private memory of a claimed sidecar, MiB": " to ".join(f"{one / (1 << 20):.1f}" for one in idle),
        },
    )


async def _timed(call: Callable[[], Awaitable[None]]) -> float:
    begun = time.perf_counter()
    await call()
    return time.perf_counter() - begun


def _rates(found: list[list[float]]) -> str:
    plain, coded = (_SIZE / (1 << 20) / median(one) for one in found)
    return f"{plain:.0f} plain, {coded:.0f} encrypted"


def _instance(number: int) -> InstanceId:
    return InstanceId(f"i-{number:016x}")


def _sandbox(number: int) -> SandboxId:
    return SandboxId(f"sb-{number:06d}")
