"""Reads the secrets that creates name by reference: a directory TENANT/SECRET/ with a file for each key."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Collection, Mapping
from pathlib import Path

from ...core.backend import Unavailable

_log = logging.getLogger(__name__)
_MOST = 1 << 20  # bytes of a file, as of a Kubernetes Secret


def secrets_in(directory: Path | None) -> DirectorySecrets | None:
    """Return the secrets of the configured directory; None without one."""
    return None if directory is None else DirectorySecrets(directory)


class DirectorySecrets:
    """Reads the files at each create. Links must stay below the directory of their tenant."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def read(self, secret: str, keys: Collection[str], *, tenant: str) -> Mapping[str, bytes]:
        try:
            return await asyncio.to_thread(self._read, secret, keys, tenant)
        except OSError as error:
            _log.error("cannot read secrets below %s: %s", self._directory, error)
            raise Unavailable(
                "secret_refs cannot be read: the gateway cannot read its --secrets-dir; try again later, or ask the "
                "operator, whose log has the cause"
            ) from error

    def _read(self, secret: str, keys: Collection[str], tenant: str) -> dict[str, bytes]:
        root = self._directory.resolve(strict=True)
        own = root / tenant
        # A tenant may be named `..`; names of secrets and keys are checked by the request's model.
        if own.parent != root or own.name in (".", ".."):
            return {}
        found = {key: _content(own / secret / key, below=own.resolve()) for key in keys}
        return {key: content for key, content in found.items() if content is not None}


def _content(path: Path, *, below: Path) -> bytes | None:
    """Return what a file has; None if there is none. Raises OSError."""
    real = path.resolve()
    if not real.is_relative_to(below):
        return None
    try:
        # Without blocking, as a pipe would.
        file = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with os.fdopen(file, "rb") as opened:
        return opened.read(_MOST) if stat.S_ISREG(os.fstat(file).st_mode) else None
