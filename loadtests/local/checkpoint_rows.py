"""A checkpoint of files and a sandbox from it, through a bucket against through a directory, in turn: what S3 costs."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sandlot import AsyncClient, AsyncSandbox
from sandlot_grade.report.scale import seconds as as_time
from sandlot_grade.report.stats import median
from sandlot_grade.stack import PrivateStack

from loadtests.reading import Reading
from tests.s3.server import S3Server

ROW = "checkpoint_s3"
MIB = 64
ROUNDS = 3
_FILE = "AWS_SHARED_CREDENTIALS_FILE"


async def checkpoint_s3(*, mib: int = MIB, rounds: int = ROUNDS) -> Reading:
    """Measure the p50 of a checkpoint of `mib` MiB and its restore in a bucket ÷ the same in a directory."""
    took: dict[str, list[float]] = {"directory": [], "bucket": []}
    parts: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in took}
    with tempfile.TemporaryDirectory(prefix="sandlot-s3-") as directory:
        server = S3Server(Path(directory))
        server.start()
        try:
            async with _stack() as local, _stack(server) as remote:
                clients = {"directory": local.client, "bucket": remote.client}
                for number in range(rounds + 1):
                    for name, client in clients.items():
                        saved, restored = await _once(client, mib=mib)
                        if number:  # the first round also opens connections
                            took[name].append(saved + restored)
                            parts[name][0].append(saved)
                            parts[name][1].append(restored)
        finally:
            server.stop()
    shown = {"files": f"{mib} MiB"}
    for name, (saves, restores) in parts.items():
        shown[f"checkpoint, {name} p50"] = as_time(median(saves))
        shown[f"create from it, {name} p50"] = as_time(median(restores))
    return Reading(value=median(took["bucket"]) / median(took["directory"]), parts=shown, curves=took)


async def _once(client: AsyncClient, *, mib: int) -> tuple[float, float]:
    """Return the seconds of a checkpoint until it is DURABLE, and of a create from it."""
    async with await AsyncSandbox.create(image="host", client=client) as box:
        made = await box.exec(f"head -c {mib << 20} /dev/urandom > /srv/files", timeout=600)
        assert made.ok, made
        begun = time.perf_counter()
        checkpoint = await box.checkpoint()
        saved = time.perf_counter() - begun
    begun = time.perf_counter()
    async with await AsyncSandbox.create(checkpoint=checkpoint, client=client):
        restored = time.perf_counter() - begun
    await AsyncSandbox.delete_checkpoint(checkpoint.id, client=client)
    return saved, restored


@asynccontextmanager
async def _stack(server: S3Server | None = None) -> AsyncIterator[PrivateStack]:
    """Run a private stack with a directory, or with a bucket of the server; it removes its files at the end."""
    options: tuple[str, ...] = ()
    if server is not None:
        place = server.place()
        options = (
            *("--checkpoint-s3", f"s3://{place.bucket}/{place.prefix}"),
            *("--checkpoint-s3-endpoint", server.endpoint),
        )
        path = server.directory / "credentials"
        path.write_text(
            "[default]\n" + "".join(f"{key.lower()} = {value}\n" for key, value in server.keys.items())
        )
        os.environ[_FILE] = str(path)
    stack = PrivateStack(options=options)
    try:
        async with stack:
            yield stack
    finally:
        stack.remove()
        if server is not None:
            del os.environ[_FILE]
