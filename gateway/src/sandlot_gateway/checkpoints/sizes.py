"""Measures the archives in a directory of checkpoints."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path


class Sizes:
    """`tenant_of` returns a checkpoint's tenant, None without a document; `copies`: what counts beside, by tenant."""

    def __init__(
        self,
        directory: Path,
        *,
        tenant_of: Callable[[str], str | None],
        copies: Callable[[], Iterable[tuple[str, int]]],
    ) -> None:
        self._directory = directory
        self._read_tenant = tenant_of
        self._copies = copies
        self._tenants: dict[str, str] = {}  # checkpoint id -> tenant, of those with an archive

    def measure(self) -> Iterator[tuple[str, int]]:
        """Yield the tenant and the bytes of each pack, once, and each manifest, also of those being written, and of what counts beside."""
        yield from self._copies()
        tenants = dict[str, str]()
        counted = set[int]()  # a pack has a link of each checkpoint whose archive lies in it
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(self._directory):
                if entry.name.endswith((".pack", ".manifest", ".part", ".tar.gz")):
                    with contextlib.suppress(FileNotFoundError):
                        info = entry.stat()
                        if info.st_ino in counted:
                            continue
                        counted.add(info.st_ino)
                        checkpoint_id = entry.name.partition(".")[0]
                        tenant = self._tenants.get(checkpoint_id) or self._read_tenant(checkpoint_id) or ""
                        if tenant:
                            tenants[checkpoint_id] = tenant
                        yield tenant, info.st_size
        self._tenants = tenants
