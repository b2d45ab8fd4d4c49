"""Measures the archives in a directory of checkpoints."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from sandlot_gateway.checkpoints.places import files_of


class Sizes:
    """`tenant_of` returns the tenant of the checkpoint that a file or directory is of, None without a document.

    `copies`: what counts beside, by tenant.
    """

    def __init__(
        self,
        directory: Path,
        *,
        tenant_of: Callable[[Path], str | None],
        copies: Callable[[], Iterable[tuple[str, int]]],
    ) -> None:
        self._directory = directory
        self._read_tenant = tenant_of
        self._copies = copies
        self._tenants: dict[str, str] = {}  # by the name of what has an archive

    def measure(self) -> Iterator[tuple[str, int]]:
        """Yield the tenant and the bytes of each pack, once, and each manifest, also of those being written, and of what counts beside."""
        yield from self._copies()
        tenants = dict[str, str]()
        counted = set[str]()  # packs: each checkpoint whose archive lies in one has a link to it
        for entry in _entries(self._directory):
            path = Path(entry.path)
            if files_of(path):
                files = _entries(path)
            elif entry.name.endswith((".part", ".tar.gz")):  # of a gateway before packs
                files = [entry]
            else:
                continue
            tenant = self._tenants.get(entry.name) or self._read_tenant(path) or ""
            if tenant:
                tenants[entry.name] = tenant
            for file in files:
                if file.name.endswith(".pack"):
                    if file.name in counted:
                        continue
                    counted.add(file.name)
                with contextlib.suppress(FileNotFoundError):
                    yield tenant, file.stat().st_size
        self._tenants = tenants


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except FileNotFoundError:
        return []
