"""Enforces the quota of checkpoint bytes: measures the store, and counts writes in between."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field

from sandlot_gateway.checkpoints.rules import StoreFull, StoreLimits

_log = logging.getLogger(__name__)

_SHARE = 5  # times as long as a measurement takes is none


@dataclass(slots=True)
class _Usage:
    """Bytes of all archives, including those being written."""

    total: int = 0
    of_tenant: Counter[str] = field(default_factory=Counter)


class Quota:
    """The bytes of all checkpoints against their limits.

    `measure` returns each archive's tenant and bytes; between two calls, `every` seconds apart or five times as long as one
    takes, this process's writes are added up, also those during a call: what it has seen of them counts twice until the
    next. While the store cannot be measured, writes are checked with the last measurement. Several gateways may share a store, and each measures it: together they may exceed a limit by what they write
    between two measurements.
    """

    def __init__(
        self, measure: Callable[[], Iterable[tuple[str, int]]], *, limits: StoreLimits, every: float
    ) -> None:
        self._read_sizes = measure
        self._limits = limits
        self._every = every
        self._usage: _Usage | None = None
        self._stale_at = float("-inf")
        self._lock = threading.Lock()  # archives are written in threads
        self._flight: Future[_Usage] | None = None  # a measurement
        self._meanwhile = _Usage()  # counted since it began

    def used(self) -> int:
        """Measure and return the bytes of all archives, including those being written."""
        return self._measure().total

    def usage(self) -> Mapping[str, int]:
        """Return the bytes of each tenant's archives, including those being written, as of the last measurement.

        Any tenant may ask at any rate, and a measurement reads the whole store.
        """
        usage = self._recent()
        with self._lock:
            return dict(usage.of_tenant)

    def check(self, tenant: str, *, hint: str) -> None:
        """Check that at least one byte may be written. Raises StoreFull."""
        self._refuse_full(tenant, size=1, hint=hint)

    def admit(self, tenant: str, size: int) -> None:
        """Count `size` bytes that are about to be written. Raises StoreFull."""
        self._refuse_full(tenant, size=size, counted=size)

    def give_back(self, tenant: str, size: int) -> None:
        """Count `size` bytes no more that were admitted: they need not be stored."""
        with self._lock:
            if self._usage is not None:  # not `_meanwhile`: the measurement may see that they are gone
                self._usage.total -= size
                self._usage.of_tenant[tenant] -= size

    def _refuse_full(self, tenant: str, *, size: int, counted: int = 0, hint: str = "") -> None:
        full: StoreFull | None = None
        # Again: one may have been deleted since, and the first measurement may count what was given back while it went on.
        for known in (self._known, self._measure, self._measure):
            known()
            with self._lock:
                assert self._usage is not None
                full = self._full(tenant, self._usage, size=size, hint=hint)
                if full is None:
                    for each in (self._usage, self._meanwhile):
                        each.total += counted
                        each.of_tenant[tenant] += counted
                    return
        assert full is not None
        raise full

    def _full(self, tenant: str, usage: _Usage, *, size: int, hint: str) -> StoreFull | None:
        limits, own = self._limits, usage.of_tenant[tenant]
        most = limits.tenant_bytes(tenant)
        if most is not None and own + size > most:
            return StoreFull(
                f"the checkpoints of tenant {tenant!r} have {own} bytes, the limit is {most}"
                f" (quota checkpoint_bytes, by default checkpoint_tenant_bytes): delete some{hint}"
            )
        if usage.total + size > limits.total_bytes:
            return StoreFull(
                f"all tenants' checkpoints have reached the limit of {limits.total_bytes} bytes (checkpoint_total):"
                f" delete some, or ask the operator for more{hint}"
            )
        return None

    def _known(self) -> None:
        """Have a usage, an earlier one while the store cannot be measured: that must end nothing that is being written."""
        try:
            self._recent()
        except OSError as error:
            with self._lock:
                if self._usage is None:
                    raise
            _log.warning("the limits of checkpoints are checked with an earlier measurement: %s", error)

    def _recent(self) -> _Usage:
        """Return the last measurement; one of its callers makes the next where it is time."""
        with self._lock:
            usage = self._usage
            if usage is not None and (self._flight is not None or time.monotonic() < self._stale_at):
                return usage
        return self._measure(join=True)

    def _measure(self, *, join: bool = False) -> _Usage:
        """Measure the store, after a measurement that is under way, or with `join` in it."""
        while True:
            with self._lock:
                flight = self._flight
                if flight is None:
                    flight = self._flight = Future()
                    self._meanwhile = _Usage()
                    break
            if join:
                return flight.result()
            wait([flight])
            join = True  # one that begins now sees all that was there at the call
        begun = time.monotonic()
        try:
            usage = _Usage()
            for tenant, size in self._read_sizes():
                usage.total += size
                usage.of_tenant[tenant] += size
        except BaseException as error:
            with self._lock:
                self._flight = None
                self._stale_at = self._next_at(begun)
            flight.set_exception(error)
            raise
        with self._lock:
            usage.total += self._meanwhile.total
            usage.of_tenant.update(self._meanwhile.of_tenant)
            self._usage, self._flight = usage, None
            self._stale_at = self._next_at(begun)
        flight.set_result(usage)
        return usage

    def _next_at(self, begun: float) -> float:
        """Return when to measure again, after a measurement that ends now."""
        ended = time.monotonic()
        return max(begun + self._every, ended + _SHARE * (ended - begun))
