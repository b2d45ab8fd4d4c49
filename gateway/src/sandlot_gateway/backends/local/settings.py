"""Settings of the local backend: its limits and timeouts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """Times in seconds."""

    max_instances: int = 1000
    gpu_root: Path = Path("/")  # below which GPUs and their driver are looked for
    secrets_dir: Path | None = None  # of the secrets that creates may name; None: they may name none
    max_starting: int | None = None  # concurrent starts for pools; default: the number of cores, at least 2
    heartbeat: float = 30.0
    start_timeout: float = 60.0  # an instance that is not ready by then ends
    end_grace: float = 0.3  # for the `ended` webhook once everything in the sandbox is dead; then SIGKILL
    patience: float = 30.0  # for a live sidecar found at start to answer
    image_hold: float = 1.0  # for which a create keeps its instance while its image is prepared
    upkeep: float = 15.0  # between two checks of logs and overdue starts
