"""Requested sandboxes that no record shows: which of them another gateway may have, and for how long."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from sandlot_contract.ids import SandboxId

_AFTER_A_QUESTION = 5.0  # seconds for which the sandbox may exist: longer than its caller waits
# Seconds for which a gateway that does not answer may have the sandbox: it may never answer.
_UNANSWERED = 60.0
_KEPT = 900.0  # seconds; longer than a client retries, so that its wait is not prolonged
_LIMIT = 10_000


@dataclass(slots=True)
class _Doubt:
    since: float
    until: float  # when the sandbox no longer may exist
    unanswered_until: float  # when a question without an answer no longer counts


class Doubts:
    """`clock` in seconds, monotonic."""

    def __init__(self, *, clock: Callable[[], float], limit: int = _LIMIT) -> None:
        self._clock = clock
        self._limit = limit
        self._doubts: OrderedDict[SandboxId, _Doubt] = OrderedDict()  # the oldest first

    def __len__(self) -> int:
        return len(self._doubts)

    def may_exist(self, sandbox_id: SandboxId) -> bool:
        doubt = self._doubts.get(sandbox_id)
        return doubt is not None and self._clock() < doubt.until

    def asked(self, sandbox_id: SandboxId) -> bool:
        """Count a question that is not answered. Return whether the sandbox may exist until it is."""
        self._forget_old()
        now = self._clock()
        doubt = self._doubts.setdefault(sandbox_id, _Doubt(now, now, now + _UNANSWERED))
        if now >= doubt.unanswered_until:
            return False
        doubt.until = now + _AFTER_A_QUESTION
        return True

    def exists(self, sandbox_id: SandboxId) -> None:
        """Count an answer that another gateway has it."""
        self._doubts.pop(sandbox_id, None)
        self.asked(sandbox_id)

    def denied(self, sandbox_id: SandboxId) -> None:
        """Count the answers of all gateways that they do not have it."""
        self._doubts.pop(sandbox_id, None)

    def settle(self, sandbox_id: SandboxId) -> None:
        """Let no question without an answer count any more."""
        doubt = self._doubts.get(sandbox_id)
        if doubt is not None:
            doubt.until = doubt.unanswered_until = self._clock()

    def _forget_old(self) -> None:
        now = self._clock()
        while self._doubts:
            sandbox_id, oldest = next(iter(self._doubts.items()))
            if now < oldest.until or (now < oldest.since + _KEPT and len(self._doubts) < self._limit):
                return
            del self._doubts[sandbox_id]
