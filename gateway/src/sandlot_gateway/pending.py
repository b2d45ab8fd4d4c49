"""Creates that were answered PENDING, on disk until they have an instance, so that a killed gateway goes on with them."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from sandlot_gateway.sandboxes import Sandbox


class _Entry(msgspec.Struct):
    sandbox: Sandbox
    secrets: dict[str, str]


class PendingStore:
    """One file each, readable by the owner only: a pending create's secrets have to be kept somewhere."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._kept: set[str] = set()

    def __contains__(self, sandbox_id: object) -> bool:
        return sandbox_id in self._kept

    def save(self, sandbox: Sandbox, *, secrets: dict[str, str]) -> None:
        """Raises OSError when the disk does not take it."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._path(sandbox.id)
        temporary = path.with_suffix(".tmp")
        flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC
        with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
            file.write(msgspec.json.encode(_Entry(sandbox, secrets)))
        temporary.replace(path)
        self._kept.add(sandbox.id)

    def remove(self, sandbox_id: str) -> None:
        if sandbox_id in self._kept:
            self._kept.discard(sandbox_id)
            self._path(sandbox_id).unlink(missing_ok=True)

    def load(self) -> list[tuple[Sandbox, dict[str, str]]]:
        """What was pending when the last gateway died, oldest first."""
        found: list[tuple[Sandbox, dict[str, str]]] = []
        for path in self._directory.glob("*.json") if self._directory.is_dir() else ():
            try:
                entry = msgspec.json.decode(path.read_bytes(), type=_Entry)
            except (OSError, msgspec.DecodeError, msgspec.ValidationError):
                path.unlink(missing_ok=True)
                continue
            self._kept.add(entry.sandbox.id)
            found.append((entry.sandbox, entry.secrets))
        return sorted(found, key=lambda pair: pair[0].created_at)

    def _path(self, sandbox_id: str) -> Path:
        return self._directory / f"{sandbox_id}.json"
