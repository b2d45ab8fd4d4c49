"""Decides which requests are traced: their caller's decision or a share of the rest, within a tenant's limit."""

from __future__ import annotations

import random
import time
from collections.abc import Callable


class Sampler:
    """`ratio`: share of the requests without a caller's decision; `limit`: traces a second of a tenant.

    Without the limit, a tenant that marks all its requests as sampled would fill the queue of all tenants' spans.
    """

    def __init__(
        self,
        *,
        ratio: float,
        limit: int,
        limited: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ratio = ratio
        self._limit = limit
        self._limited = limited
        self._clock = clock
        self._second = 0
        self._traced: dict[str, int] = {}  # in this second, by tenant

    def samples(self, caller: bool | None, tenant: str) -> bool:
        """Return whether to trace a request. `caller`: the decision in its valid traceparent, else None."""
        if caller is None:
            caller = random.random() < self.ratio
        if not caller:
            return False
        second = int(self._clock())
        if second != self._second:
            self._second = second
            self._traced.clear()
        traced = self._traced.get(tenant, 0)
        if traced >= self._limit:
            self._limited()
            return False
        self._traced[tenant] = traced + 1
        return True
