"""Reads the secrets that creates name by reference: a directory TENANT/SECRET/ with a file for each key."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import stat
from collections.abc import Collection, Mapping
from pathlib import Path

from ...core.backend import Unavailable
from ...core.secret_refs import SecretSource

_log = logging.getLogger(__name__)
_MOST = 1 << 20  # bytes of a file, as of a Kubernetes Secret


def secrets_in(directory: Path | None) -> SecretSource | None:
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
        found: dict[str, bytes] = {}
        for key in keys:
            # A tenant may be named `..`; names of secrets and keys are checked by the request's model.
            inside = own.parent == root and own.name not in (".", "..")
            # Of a tenant's directory that is a link, the target would not be hidden from sandboxes.
            content = _content(own / secret / key, below=own) if inside else None
            if content is not None:
                found[key] = content
            else:
                # The caller gets one text for every reason.
                _log.info(
                    "tenant %s may not use key %s of secret %s: it has no such file", tenant, key, secret
                )
        return found


def _content(path: Path, *, below: Path) -> bytes | None:
    """Return what a file has; None if there is none. Raises OSError."""
    try:
        real = path.resolve()
    except RuntimeError:  # links that lead in a circle
        return None
    if not real.is_relative_to(below):
        return None
    try:
        # Without blocking, as a pipe would.
        file = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # links in a circle, a socket
            return None
        raise
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        return None
    with os.fdopen(file, "rb") as opened:
        return opened.read(_MOST)
