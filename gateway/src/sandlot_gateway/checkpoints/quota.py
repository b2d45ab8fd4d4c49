"""Enforces the quota of checkpoint bytes: measures the directory, and counts writes in between."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

_MEASURE_EVERY = 0.25  # seconds; in between, this process's writes are added up


class StoreFull(Exception):
    """Raised when a limit is reached; the message names it and the remedy."""


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """Limits; bytes are those of archives. `tenant_count` ignores FAILED checkpoints, kept for `failed_keep` seconds."""

    total_bytes: int = 20 << 30
    tenant_bytes: Callable[[str], int | None] = lambda tenant: 10 << 30  # by tenant; None: as many as all
    tenant_count: int = 1000
    failed_keep: float = 3600.0


@dataclass(slots=True)
class _Usage:
    """Bytes of all archives, including those being written."""

    total: int = 0
    of_tenant: Counter[str] = field(default_factory=Counter)


class Quota:
    """The bytes of all checkpoints against their limits. `tenant_of` returns a checkpoint's tenant, None without one.

    Several gateways may share a directory, and each measures it: together they may exceed a limit by what they write
    between two measurements.
    """

    def __init__(
        self, directory: Path, *, limits: StoreLimits, tenant_of: Callable[[str], str | None]
    ) -> None:
        self._directory = directory
        self._limits = limits
        self._read_tenant = tenant_of
        self._tenants: dict[str, str] = {}  # checkpoint id -> tenant, of those with an archive
        self._usage = _Usage()
        self._measured_at = float("-inf")
        self._writing = threading.Lock()  # archives are written in threads

    def used(self) -> int:
        """Measure and return the bytes of all archives, including those being written."""
        return self._measure().total

    def used_by(self, tenant: str) -> int:
        """Return the bytes of the tenant's archives, including those being written, as of the last measurement.

        Any tenant may ask at any rate, and a measurement reads the whole directory while nobody may write.
        """
        with self._writing:
            return self._recent().of_tenant[tenant]

    def check(self, tenant: str, *, hint: str) -> None:
        """Check that at least one byte may be written. Raises StoreFull."""
        with self._writing:
            self._refuse_full(tenant, self._measure(), size=1, hint=hint)

    def admit(self, tenant: str, size: int) -> None:
        """Count `size` bytes that are about to be written. Raises StoreFull."""
        with self._writing:
            usage = self._recent()
            try:
                self._refuse_full(tenant, usage, size=size)
            except StoreFull:
                usage = self._measure()  # one may have been deleted since
                self._refuse_full(tenant, usage, size=size)
            usage.total += size
            usage.of_tenant[tenant] += size

    def _refuse_full(self, tenant: str, usage: _Usage, *, size: int, hint: str = "") -> None:
        limits, own = self._limits, usage.of_tenant[tenant]
        most = limits.tenant_bytes(tenant)
        if most is not None and own + size > most:
            raise StoreFull(
                f"the checkpoints of tenant {tenant!r} have {own} bytes, the limit is {most}"
                f" (quota checkpoint_bytes, by default checkpoint_tenant_bytes): delete some{hint}"
            )
        if usage.total + size > limits.total_bytes:
            raise StoreFull(
                f"all tenants' checkpoints have reached the limit of {limits.total_bytes} bytes (checkpoint_total):"
                f" delete some, or ask the operator for more{hint}"
            )

    def _recent(self) -> _Usage:
        stale = time.monotonic() - self._measured_at > _MEASURE_EVERY
        return self._measure() if stale else self._usage

    def _measure(self) -> _Usage:
        usage, tenants = _Usage(), dict[str, str]()
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(self._directory):
                if entry.name.endswith((".tar.gz", ".part")):
                    with contextlib.suppress(FileNotFoundError):
                        size = entry.stat().st_size
                        checkpoint_id = entry.name.partition(".")[0]
                        tenant = self._tenants.get(checkpoint_id) or self._read_tenant(checkpoint_id) or ""
                        if tenant:
                            tenants[checkpoint_id] = tenant
                        usage.total += size
                        usage.of_tenant[tenant] += size
        self._tenants, self._usage, self._measured_at = tenants, usage, time.monotonic()
        return usage
