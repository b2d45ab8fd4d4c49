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
        """Yield the tenant and the bytes of each archive, also of those being written, and of what counts beside."""
        yield from self._copies()
        tenants = dict[str, str]()
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(self._directory):
                if entry.name.endswith((".tar.gz", ".part")):
                    with contextlib.suppress(FileNotFoundError):
                        size = entry.stat().st_size
                        checkpoint_id = entry.name.partition(".")[0]
                        tenant = self._tenants.get(checkpoint_id) or self._read_tenant(checkpoint_id) or ""
                        if tenant:
                            tenants[checkpoint_id] = tenant
                        yield tenant, size
        self._tenants = tenants
