"""Pending creates on disk until they have an instance, so that a restarted gateway continues them."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
from sandlot_contract.ids import SandboxId

from sandlot_gateway.atomic_file import write_atomic
from sandlot_gateway.sandboxes import Sandbox
from sandlot_gateway.sealing import BadSeal, Seal

_log = logging.getLogger(__name__)
_SUFFIX = ".sealed"


class _Entry(msgspec.Struct):
    sandbox: Sandbox
    secrets: dict[str, str]


class PendingStore:
    """Keeps one encrypted file per pending create, with the secrets that the caller sends only once."""

    def __init__(self, directory: Path, *, seal: Seal) -> None:
        self._directory = directory
        self._seal = seal
        self._kept: set[SandboxId] = set()

    def __contains__(self, sandbox_id: object) -> bool:
        return sandbox_id in self._kept

    def save(self, sandbox: Sandbox, *, secrets: dict[str, str]) -> None:
        """Write the pending create to disk. Raises OSError."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        sealed = self._seal.seal(msgspec.json.encode(_Entry(sandbox, secrets)), name=sandbox.id)
        write_atomic(self._path(sandbox.id), sealed)
        self._kept.add(sandbox.id)

    def remove(self, sandbox_id: SandboxId) -> None:
        if sandbox_id in self._kept:
            self._kept.discard(sandbox_id)
            self._path(sandbox_id).unlink(missing_ok=True)

    def load(self) -> list[tuple[Sandbox, dict[str, str]]]:
        """Return what was pending when the last gateway stopped, oldest first. Drops and logs unreadable files."""
        found: list[tuple[Sandbox, dict[str, str]]] = []
        for path in list(self._directory.iterdir()) if self._directory.is_dir() else ():
            try:
                entry = self._read(path)
            except (OSError, ValueError) as error:
                _log.error("dropped the pending create %s: %s", path.stem, error)
                path.unlink(missing_ok=True)
            else:
                self._kept.add(entry.sandbox.id)
                found.append((entry.sandbox, entry.secrets))
        return sorted(found, key=lambda pair: pair[0].created_at)

    def _read(self, path: Path) -> _Entry:
        """Read one file. Raises OSError, or ValueError with what to do."""
        if path.suffix != _SUFFIX:
            raise ValueError(
                "an earlier version wrote it without encryption, or it is unfinished; create the sandbox again"
            )
        try:
            plain = self._seal.open(path.read_bytes(), name=path.stem)
        except BadSeal as error:
            raise ValueError(
                f"{error}: the master key is another than when it was written, or the file was changed;"
                " create the sandbox again"
            ) from error
        try:
            return msgspec.json.decode(plain, type=_Entry)
        except msgspec.MsgspecError as error:
            # Not its text, which may quote what was read.
            raise ValueError("another version of the gateway wrote it; create the sandbox again") from error

    def _path(self, sandbox_id: SandboxId) -> Path:
        return self._directory / f"{sandbox_id}{_SUFFIX}"
