"""How many watches there may be, and how often each may look: user code decides what one look costs."""

from __future__ import annotations

from collections import Counter

from sandlot_contract.ids import SandboxId

from .failures import EnvdFailure

_PER_SANDBOX = 16
_PER_TENANT = 64  # each keeps a look in memory
_REST = 15  # times a look's duration between two looks: 16 streams keep about one look running
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 2.0  # seconds between quick looks: longer while nothing changes


class WatchRoom:
    def __init__(self) -> None:
        self._taken: Counter[tuple[str, SandboxId]] = Counter()

    def take(self, tenant: str, sandbox_id: SandboxId) -> None:
        """Count a watch before its first look, until `leave`. Raises EnvdFailure."""
        if self._taken[tenant, sandbox_id] >= _PER_SANDBOX:
            text = f"more than {_PER_SANDBOX} watchers of one sandbox: remove some first"
            raise EnvdFailure("resource_exhausted", text)
        if sum(count for (owner, _), count in self._taken.items() if owner == tenant) >= _PER_TENANT:
            raise EnvdFailure("resource_exhausted", f"more than {_PER_TENANT} watchers: remove some first")
        self._taken[tenant, sandbox_id] += 1

    def leave(self, tenant: str, sandbox_id: SandboxId) -> None:
        self._taken[tenant, sandbox_id] -= 1
        if not self._taken[tenant, sandbox_id]:
            del self._taken[tenant, sandbox_id]


class Pace:
    """The pauses of one stream."""

    def __init__(self) -> None:
        self._quick = _FIRST_PAUSE

    def pause(self, *, took: float, changed: bool) -> float:
        """Return the seconds until the next look; `took`: those of the last one."""
        self._quick = _FIRST_PAUSE if changed else min(self._quick * 1.5, _LONGEST_PAUSE)
        return max(self._quick, _REST * took)
