"""Builds a checkpoint from a Dockerfile: replays its instructions in sandboxes, or finds an earlier build."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from sandlot._async.client import AsyncClient
from sandlot.builds import Built


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
    """Replay a Dockerfile in sandboxes and keep the result as a checkpoint. Raises DockerfileError, BuildFailed."""
    raise NotImplementedError
