"""Reads or creates the master key, and other files that only the gateway's user may read."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

from sandlot_contract.tokens import MIN_KEY

from sandlot_gateway.atomic_file import write_atomic
from sandlot_gateway.core.backend import BackendError
from sandlot_gateway.settings import Settings


def master_key(settings: Settings) -> bytes:
    """Return the master key. Raises OSError, or BackendError for a file without a key."""
    if settings.key_file is None:
        return _own_key(settings.state_dir / "key")
    key = settings.key_file.read_bytes()
    if len(key) < MIN_KEY:
        raise BackendError(
            f"--key-file {settings.key_file}: the master key must have at least {MIN_KEY} bytes; write random ones"
        )
    return key


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
