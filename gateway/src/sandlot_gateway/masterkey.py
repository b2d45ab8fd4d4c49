"""Reads or creates the master key, and other files that only the gateway's user may read."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

from sandlot_contract.keyring import BadKeyring, Keyring, read

from sandlot_gateway.atomic_file import write_atomic
from sandlot_gateway.core.backend import BackendError
from sandlot_gateway.settings import Settings


def master_keys(settings: Settings) -> Keyring:
    """Return the master key and those beside it. Raises OSError, or BackendError for a file without a key."""
    try:
        if settings.key_file is None:
            return Keyring(_own_key(settings.state_dir / "key"))
        return read(settings.key_file)
    except BadKeyring as error:
        raise BackendError(f"--key-file: {error}") from error


def _own_key(path: Path) -> bytes:
    """Return the machine's own key, created at the first start. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return secret_file(path, lambda: secrets.token_bytes(32))


def secret_file(path: Path, make: Callable[[], bytes]) -> bytes:
    """Read a file that only this user may read; if missing, write it atomically."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        write_atomic(path, make(), durable=True)
        return path.read_bytes()
