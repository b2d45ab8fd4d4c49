"""The state that survives a restart of the sidecar: generation, claim, binding, egress policy and end."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Record:
    """The recorded state, as plain data; `server/record.py` keeps it on disk."""

    __slots__ = (
        "bound_to",
        "claim",
        "claimed_at",
        "deadline",
        "egress",
        "generation",
        "image",
        "last",
        "message",
        "uses",
        "verdict",
    )

    def __init__(self) -> None:
        self.generation = 1
        self.claim: dict[str, Any] | None = None
        self.claimed_at: float | None = None
        self.deadline: float | None = (
            None  # Unix seconds, set after the claim; None: the claim's timeout holds
        )
        self.uses = 0  # generations that had an owner, this one included
        self.bound_to: str | None = None  # the tenant of all of them
        self.egress: dict[str, Any] | None = None  # the owner's egress policy; None: never set
        self.image: dict[str, Any] | None = None  # the last one that a claim named; None: the config's root
        self.last = False  # no generation follows this one
        self.verdict: str | None = None
        self.message: str | None = None

    def document(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def own(self, claim: dict[str, Any], *, now: float) -> None:
        """Set the owner and bind to its tenant, in memory only, as all methods here."""
        self.claim, self.claimed_at = claim, now
        self.bound_to = claim["tenant"]
        self.uses += 1

    def next_generation(self) -> Record:
        """Return the record of the next generation, which has no owner yet."""
        record = Record()
        for name in self.__slots__:
            setattr(record, name, getattr(self, name))
        record.generation += 1
        record.disown()
        return record

    def disown(self) -> None:
        """Remove the owner; the binding stays."""
        self.claim = self.claimed_at = self.deadline = self.egress = None

    def withdraw(self) -> None:
        """Undo `own` for a claim that failed before its owner's code ran."""
        if self.claim is None:
            return
        self.disown()
        self.uses -= 1
        if not self.uses:
            self.bound_to = None

    def deadline_at(self) -> float | None:
        """Return the deadline in Unix seconds, or None if there is none."""
        if self.deadline is not None:
            return self.deadline
        if self.claim is None or self.claim["timeout"] is None or self.claimed_at is None:
            return None
        return self.claimed_at + self.claim["timeout"]
