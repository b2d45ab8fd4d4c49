"""The life of the instance: every move from one phase to the next is decided here, and nowhere else.

An instance runs sandboxes one after the other: each reset begins its next generation, and a sandbox is a generation
that has an owner. Plain data: no I/O, no clock, no tasks.
"""

from __future__ import annotations

import enum
from _operator import _compare_digest as compare_digest

from sandlot_contract import phases

from .errors import ApiError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .ends import End
    from .record import Record


class Phase(enum.Enum):
    """Where the instance is."""

    STARTING = (
        enum.auto()
    )  # no command has run in it yet: nobody's, or an owner's of before a restart or reset
    WARM = enum.auto()
    CLAIMING = enum.auto()  # an owner is being taken, and counts when all of it holds
    AWAITING = enum.auto()  # owned, and its checkpoint's files are to come: nothing runs until they are there
    RESTORING = enum.auto()  # they come
    CLAIMED = enum.auto()
    RESETTING = enum.auto()  # being emptied, for its owner or for the next one
    ENDED = enum.auto()
    FAILED = enum.auto()


# What the contract calls them. A claim that is under way may still fail: a gateway that was told of an owner in an
# instance that is not its owner's yet would take it for both known and free.
CALLED = {
    Phase.STARTING: phases.Phase.STARTING,
    Phase.WARM: phases.Phase.WARM,
    Phase.CLAIMING: phases.Phase.WARM,
    Phase.AWAITING: phases.Phase.CLAIMED,
    Phase.RESTORING: phases.Phase.CLAIMED,
    Phase.CLAIMED: phases.Phase.CLAIMED,
    Phase.RESETTING: phases.Phase.STARTING,
    Phase.ENDED: phases.Phase.ENDED,
    Phase.FAILED: phases.Phase.FAILED,
}
OWNED = frozenset((Phase.AWAITING, Phase.RESTORING, Phase.CLAIMED))


class Heard(enum.Enum):
    """What news comes to."""

    NEWS = enum.auto()
    KNOWN = enum.auto()
    LATE = enum.auto()  # of a sandbox that has ended since
    IMPOSSIBLE = enum.auto()  # it cannot happen in this phase: nothing has changed


class Life:
    """`record` is what outlives the process: changed here alone, but for its policy, and written by the driver.

    A request that cannot be served raises ApiError; then nothing has changed.
    """

    def __init__(self, record: Record) -> None:
        self.record = record
        self.phase = Phase.STARTING if record.verdict is None else Phase.ENDED
        self.impossible: str | None = None  # the last event that met a phase in which it cannot happen
        self.keeps = False  # its owner, over a reset

    @property
    def over(self) -> bool:
        return self.phase is Phase.ENDED or self.phase is Phase.FAILED

    @property
    def restoring(self) -> bool:
        """Owned, and the files of its checkpoint are not all there."""
        return self.phase is Phase.AWAITING or self.phase is Phase.RESTORING

    # Its building.

    def built(self) -> Heard:
        """A command has run in it: WARM, or its owner's again."""
        if self.over:
            return Heard.LATE
        if self.phase is not Phase.STARTING:
            return self._cannot("built")
        self.phase = Phase.WARM if self.record.claim is None else Phase.CLAIMED
        return Heard.NEWS

    # Whose it is.

    def claim(self, claim: dict[str, Any], *, generation: int | None, now: float) -> bool:
        """Compare and set: True when this claim wins now (CLAIMING), False when it is the one that is held already."""
        self.refuse_over()
        record, held = self.record, self.record.claim
        if held is None and self.phase is not Phase.WARM:
            raise starting("the sandbox is not ready yet")
        if self.phase is Phase.CLAIMING:  # the driver takes one claim after the other
            self._cannot("claim")
            raise starting("an owner is being taken: try again after Retry-After")
        self._check_generation(generation)
        if held is None:
            record.claim, record.claimed_at = claim, now
            self.phase = Phase.CLAIMING
            return True
        if compare_digest(held["token"], claim["token"]) and held == claim:
            return False
        extra: dict[str, Any] = {}
        if claim["tenant"] is not None and claim["tenant"] == held["tenant"]:
            extra["sandbox_id"] = held["sandbox_id"]
        raise ApiError(409, "already_claimed", "this instance has another owner: claim another one", **extra)

    def claimed(self) -> Heard:
        """All of the claim holds: CLAIMED, or AWAITING where it brings files."""
        if self.over:
            return Heard.LATE
        if self.phase is not Phase.CLAIMING or self.record.claim is None:
            return self._cannot("claimed")
        self.phase = Phase.AWAITING if self.record.claim["restore"] else Phase.CLAIMED
        return Heard.NEWS

    def claim_failed(self) -> Heard:
        """WARM: a claim that was not answered would keep others out."""
        if self.over:
            return Heard.LATE
        if self.phase is not Phase.CLAIMING:
            return self._cannot("claim_failed")
        self.record.disown()
        self.phase = Phase.WARM
        return Heard.NEWS

    # The files of its checkpoint.

    def restore(self) -> None:
        """They come: RESTORING."""
        self.refuse_over()
        if self.phase is not Phase.AWAITING:
            text = "files can only be restored once, into a sandbox whose claim asks for it"
            raise ApiError(409, "conflict", text)
        self.phase = Phase.RESTORING

    def restored(self, *, generation: int) -> Heard:
        """All are there: CLAIMED."""
        if self.over or generation != self.record.generation:
            return Heard.LATE
        if self.phase is not Phase.RESTORING:
            return self._cannot("restored")
        self.phase = Phase.CLAIMED
        return Heard.NEWS

    # Its reset.

    def reset(self, *, keep_claim: bool, generation: int | None, overlay: bool) -> dict[str, Any] | None:
        """RESETTING; returns the claim that is kept. `overlay`: without one it cannot be reset."""
        self.refuse_over()
        self._check_generation(generation)
        if self.phase is not Phase.WARM and self.phase not in OWNED:
            raise starting("the sandbox is not ready yet")
        if not overlay:
            raise ApiError(409, "no_overlay", "the root is not an overlay: this sandbox cannot be reset")
        kept = self.record.claim if keep_claim else None
        if kept is not None and kept["restore"]:
            text = "a sandbox from a checkpoint cannot be reset: only its image is here, not the checkpoint's files"
            raise ApiError(409, "conflict", text)
        self.phase, self.keeps = Phase.RESETTING, kept is not None
        return kept

    def emptied(self) -> Heard:
        """The proof holds: STARTING. NEWS: a generation is over, and nobody owns the next one; KNOWN: it goes on."""
        if self.over:
            return Heard.LATE
        if self.phase is not Phase.RESETTING:
            return self._cannot("emptied")
        self.phase = Phase.STARTING
        if self.keeps:
            return Heard.KNOWN
        self.record.generation += 1
        self.record.disown()
        return Heard.NEWS

    # Its end.

    def end(
        self,
        end: End,
        *,
        generation: int | None = None,
        only_unclaimed: bool = False,
        only_of: str | None = None,
    ) -> Heard:
        """The first end stays. `generation`: of which this is the end. Raises 409 `claimed` where others own it.

        `only_of`: the sandbox that may own it.
        """
        if self.over:
            return Heard.KNOWN
        if generation is not None and generation != self.record.generation:
            return Heard.LATE
        claim = self.record.claim
        anothers = only_of is not None and claim is not None and claim["sandbox_id"] != only_of
        if anothers or (only_unclaimed and claim is not None):
            raise ApiError(409, "claimed", "this instance has an owner")
        self.phase = Phase.FAILED if end.failed else Phase.ENDED
        self.record.verdict, self.record.message = end.verdict, end.message
        return Heard.NEWS

    # What may be done now.

    def gate(self) -> None:
        """Whether its owner may use it. Raises 410 or 503."""
        if self.phase is not Phase.CLAIMED:
            self.refuse_over()
            if self.restoring:
                raise starting("the sandbox's files are being restored: try again after Retry-After")
            raise starting("the sandbox is still being made: try again after Retry-After")

    def owned(self) -> dict[str, Any]:
        """The claim of its owner. Raises 410, or a 409 where there is none."""
        self.refuse_over()
        if self.phase not in OWNED or self.record.claim is None:
            raise ApiError(409, "not_claimed", "this instance has no owner")
        return self.record.claim

    def refuse_over(self) -> None:
        """Raises 410 after the end."""
        if self.over:
            raise ApiError(410, "ended", "the sandbox has ended: create another", verdict=self.record.verdict)

    # Inside.

    def _check_generation(self, generation: int | None) -> None:
        """Whether the caller means the present one; None: any."""
        present = self.record.generation
        if generation is not None and generation != present:
            text = f"this instance is at generation {present}"
            raise ApiError(409, "stale_generation", text, field="generation", generation=present)

    def _cannot(self, event: str) -> Heard:
        self.impossible = event
        return Heard.IMPOSSIBLE


def starting(message: str) -> ApiError:
    """A 503 for who comes too early."""
    return ApiError(503, "starting", message, headers=(("Retry-After", "1"),))
