"""Builds a checkpoint from a Dockerfile: replays its instructions in sandboxes, or finds an earlier build."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from weakref import WeakValueDictionary

from sandlot import builds
from sandlot._async.client import AsyncClient, default_client
from sandlot._async.replay import AsyncReplay
from sandlot._async.sandbox import AsyncSandbox
from sandlot._dockerfile.context import open_context
from sandlot._dockerfile.key import build_key
from sandlot._dockerfile.stages import parse
from sandlot._protocol import checks
from sandlot._tasks_async import Lock, now, run_blocking, scope, shielded
from sandlot.builds import Built
from sandlot.errors import DockerfileError, SandboxLost
from sandlot.units import parse_size

ATTEMPTS = 3  # at a build whose sandboxes the infrastructure loses


async def build(
    context: str | os.PathLike[str],
    *,
    dockerfile: str | os.PathLike[str] | None = None,
    args: Mapping[str, str] | None = None,
    target: str | None = None,
    platform: str = "linux/amd64",
    cache: bool = True,
    timeout: float = 3600.0,
    cpu: float | None = None,
    memory: int | str | None = None,
    disk: int | str | None = None,
    network: str = "full",
    labels: Sequence[str] = (),
    on_output: Callable[[str], None] | None = None,
    client: AsyncClient | None = None,
) -> Built:
    """Replay a Dockerfile in sandboxes and keep the result as a checkpoint, or return that of an equal earlier build.

    `dockerfile` is a path, by default `Dockerfile` in the context. `args` are build arguments, `target` is the stage
    to build, `platform` the server's. `timeout` is seconds for the whole build; `cpu`, `memory`, `disk`, `network`
    and `labels` are those of its sandboxes. `on_output` gets each instruction and its output. Raises DockerfileError,
    BuildFailed (an instruction failed), FilesRefused (its files cannot be saved), SandboxLost (the infrastructure failed
    repeatedly), ServerError and OSError.
    """
    root = Path(context)
    path = Path(dockerfile) if dockerfile is not None else root / "Dockerfile"
    given = checks.strings(args or {}, name="args")
    text = await run_blocking(lambda: path.read_bytes().decode("utf-8", "replace"))
    parsed = parse(text, file=str(path), args=given, platform=platform)
    needed = parsed.needed(parsed.find(target))
    files = await run_blocking(lambda: open_context(root, path))
    settings = {"platform": platform, "disk": None if disk is None else parse_size(disk, name="disk")}

    async def current_key() -> str:
        return await run_blocking(lambda: build_key(parsed, needed, files, args=given, settings=settings))

    key = await current_key()
    client = client or await default_client()

    async def unchanged() -> bool:
        try:
            return await current_key() == key
        except (DockerfileError, OSError):  # a file is gone
            return False

    async def attempt(deadline: float) -> Built:
        replay = AsyncReplay(
            parsed,
            files,
            args=given,
            platform=platform,
            deadline=deadline,
            create={
                "cpu": cpu,
                "memory": memory,
                "disk": disk,
                "network": network,
                "labels": labels,
                "client": client,
            },
            on_output=on_output,
        )
        try:
            box, state = await replay.run(needed)
            built = state.built(checkpoint_id="", image=box.info.image, key=key)
            # A file that changed meanwhile may be in the checkpoint with other contents than in the key.
            name = _name(key) if cache and await unchanged() else None
            kept = await box.checkpoint(name=name, metadata=built.kept(), wait=max(60.0, deadline - now()))
            built = replace(built, checkpoint_id=kept.id)
            return built if name is None else await _first(built, client)
        finally:
            await shielded(replay.aclose)

    if not cache:
        return await _retried(attempt, timeout)
    locks: WeakValueDictionary[object, Lock] = scope().setdefault("builds", WeakValueDictionary())
    lock = locks.setdefault((id(client), key), Lock())
    async with lock:  # in this process, the second of two equal builds finds the first
        earlier = await find_build(key, client=client)
        return earlier or await _retried(attempt, timeout)


async def _retried(attempt: Callable[[float], Awaitable[Built]], timeout: float) -> Built:
    deadline = now() + timeout
    for _ in range(ATTEMPTS - 1):
        try:
            return await attempt(deadline)
        except SandboxLost as error:
            # An image that is missing now is missing at the next attempt, too.
            if not error.infrastructure or error.verdict == "image_pull":
                raise
    return await attempt(deadline)


async def _first(built: Built, client: AsyncClient) -> Built:
    """Return the first equal build to be complete; another machine may have finished one meanwhile."""
    first = await find_build(built.key, client=client)
    if first is None or first.checkpoint_id == built.checkpoint_id:
        return built
    await AsyncSandbox.delete_checkpoint(built.checkpoint_id, client=client)
    return first


async def find_build(key: str, *, client: AsyncClient | None = None) -> Built | None:
    """Return the first complete build with this key, or None."""
    for one in await AsyncSandbox.find_checkpoints(_name(key), client=client):
        built = builds.found(one.id, key=key, metadata=one.metadata)
        if one.state == "DURABLE" and built is not None:
            return built
    return None


def _name(key: str) -> str:
    return f"build-{key}"
