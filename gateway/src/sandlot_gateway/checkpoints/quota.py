"""Enforces the quota of checkpoint bytes: measures the store, and counts writes in between."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from sandlot_gateway.checkpoints.rules import StoreFull, StoreLimits


@dataclass(slots=True)
class _Usage:
    """Bytes of all archives, including those being written."""

    total: int = 0
    of_tenant: Counter[str] = field(default_factory=Counter)


class Quota:
    """The bytes of all checkpoints against their limits.

    `measure` returns each archive's tenant and bytes; between two calls, `every` seconds apart, this process's writes are
    added up. Several gateways may share a store, and each measures it: together they may exceed a limit by what they write
    between two measurements.
    """

    def __init__(
        self, measure: Callable[[], Iterable[tuple[str, int]]], *, limits: StoreLimits, every: float
    ) -> None:
        self._read_sizes = measure
        self._limits = limits
        self._every = every
        self._usage = _Usage()
        self._measured_at = float("-inf")
        self._writing = threading.Lock()  # archives are written in threads

    def used(self) -> int:
        """Measure and return the bytes of all archives, including those being written."""
        return self._measure().total

    def used_by(self, tenant: str) -> int:
        """Return the bytes of the tenant's archives, including those being written, as of the last measurement.

        Any tenant may ask at any rate, and a measurement reads the whole store while nobody may write.
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
        stale = time.monotonic() - self._measured_at > self._every
        return self._measure() if stale else self._usage

    def _measure(self) -> _Usage:
        usage = _Usage()
        for tenant, size in self._read_sizes():
            usage.total += size
            usage.of_tenant[tenant] += size
        self._usage, self._measured_at = usage, time.monotonic()
        return usage
