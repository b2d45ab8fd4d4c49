"""The state that survives a restart of the sidecar: generation, claim, egress policy and end."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Record:
    """The recorded state, as plain data; `server/record.py` keeps it on disk."""

    __slots__ = ("claim", "claimed_at", "egress", "generation", "message", "verdict")

    def __init__(self) -> None:
        self.generation = 1
        self.claim: dict[str, Any] | None = None
        self.claimed_at: float | None = None
        self.egress: dict[str, Any] | None = None  # the owner's egress policy; None: never set
        self.verdict: str | None = None
        self.message: str | None = None

    def document(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def disown(self) -> None:
        """Remove the owner, in memory only."""
        self.claim = self.claimed_at = self.egress = None

    def deadline_at(self) -> float | None:
        """Return the deadline in Unix seconds, or None if there is none."""
        if self.claim is None or self.claim["timeout"] is None or self.claimed_at is None:
            return None
        return self.claimed_at + self.claim["timeout"]
