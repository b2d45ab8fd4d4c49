"""When a pool asks a pod again that could not be retired: at once, then more and more rarely."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from enum import Enum

SOONEST = 0.5  # seconds until a pod is asked again, twice as many after each further attempt
LONGEST = 30.0
_UNSEEN = 1.0  # seconds in which the watch shows why a pod could not be deleted


class Attempt(Enum):
    """How an attempt to retire a pod ended."""

    GONE = "the pod ends"
    OWNED = "a sandbox has it"
    CHANGED = "it changed before its deletion"
    FAILED = "its sidecar or the API server could not be asked"


@dataclass(frozen=True, slots=True)
class _Refused:
    attempts: int
    until: float


class Retirements:
    """Pods of one pool that were not retired. All `now` are from one monotonic clock."""

    def __init__(self) -> None:
        self._refused: dict[str, _Refused] = {}

    def ended(self, pod: str, attempt: Attempt, *, now: float) -> None:
        """Record the end of an attempt."""
        before = self._refused.pop(pod, None)
        if attempt is Attempt.GONE:
            return
        if attempt is Attempt.CHANGED:
            self._refused[pod] = _Refused(0, now + _UNSEEN)
            return
        attempts = before.attempts + 1 if before is not None and now < before.until + LONGEST else 1
        self._refused[pod] = _Refused(attempts, now + min(SOONEST * 2 ** min(attempts - 1, 16), LONGEST))

    def due(self, pod: str) -> float:
        """Return when the pod may be asked."""
        refused = self._refused.get(pod)
        return refused.until if refused is not None else 0.0

    def keep(self, pods: Container[str]) -> None:
        """Forget all other pods."""
        for name in [name for name in self._refused if name not in pods]:
            del self._refused[name]
