"""The key that every token is made from, and other files that only the gateway's user may read."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path

from sandlot_contract.tokens import MIN_KEY

from sandlot_gateway.core.backend import BackendError
from sandlot_gateway.settings import Settings


def master_key(settings: Settings) -> bytes:
    """Raises OSError, or BackendError for a file that holds no key."""
    if settings.key_file is None:
        return _own_key(settings.state_dir / "key")
    key = settings.key_file.read_bytes()
    if len(key) < MIN_KEY:
        raise BackendError(
            f"--key-file {settings.key_file}: the master key must have at least {MIN_KEY} bytes; write random ones"
        )
    return key


def _own_key(path: Path) -> bytes:
    """Made once, then read. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return secret_file(path, lambda: secrets.token_bytes(32))


def secret_file(path: Path, make: Callable[[], bytes]) -> bytes:
    """The content of a file that only this user may read; written whole or not at all."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
        with os.fdopen(os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
            file.write(make())
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        return path.read_bytes()
