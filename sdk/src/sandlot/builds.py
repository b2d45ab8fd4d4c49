"""What a build from a Dockerfile returns: a checkpoint, and the settings that its containers would have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sandlot.models import CheckpointInfo


def _no_strings() -> dict[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class Built:
    """The result of a build; `Sandbox.create(checkpoint=built)` starts a sandbox with its files and settings.

    `env` has what the Dockerfile sets; the base image's own variables apply as well. `workdir`, `user`, `entrypoint`,
    `cmd` and `stop_signal` are None where the base image's apply. `cached` is whether an earlier build was found.
    """

    checkpoint_id: str
    image: str
    key: str
    env: dict[str, str] = field(default_factory=_no_strings)
    workdir: str | None = None
    user: str | None = None
    entrypoint: tuple[str, ...] | None = None
    cmd: tuple[str, ...] | None = None
    exposed_ports: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    labels: dict[str, str] = field(default_factory=_no_strings)
    stop_signal: str | None = None
    cached: bool = False

    @property
    def command(self) -> list[str] | None:
        """ENTRYPOINT and CMD as one argv, or None if the Dockerfile sets neither."""
        whole = [*(self.entrypoint or ()), *(self.cmd or ())]
        return whole or None

    def kept(self) -> dict[str, str]:
        """Return the settings as metadata of the checkpoint."""
        values = {
            name: value
            for name, value in asdict(self).items()
            if name not in ("checkpoint_id", "key", "cached") and value not in (None, (), {})
        }
        return {"build": json.dumps(values, separators=(",", ":"))}


def found(checkpoint_id: str, *, key: str, metadata: Mapping[str, str]) -> Built | None:
    """Return the build that a checkpoint's metadata describes, or None if it describes none."""
    try:
        values: dict[str, Any] = json.loads(metadata["build"])
        for name in ("entrypoint", "cmd", "exposed_ports", "volumes"):
            if values.get(name) is not None:
                values[name] = tuple(values[name])
        return replace(Built(**values, checkpoint_id=checkpoint_id, key=key), cached=True)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def of(checkpoint: str | CheckpointInfo | Built | None) -> Built | None:
    """Return the build that a checkpoint is of, if it is known to be of one."""
    if isinstance(checkpoint, CheckpointInfo):
        return found(checkpoint.id, key="", metadata=checkpoint.metadata)
    return checkpoint if isinstance(checkpoint, Built) else None


def checkpoint_id(checkpoint: str | CheckpointInfo | Built | None) -> str | None:
    if isinstance(checkpoint, CheckpointInfo):
        return checkpoint.id
    return checkpoint.checkpoint_id if isinstance(checkpoint, Built) else checkpoint
