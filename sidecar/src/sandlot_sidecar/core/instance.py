"""State machine of the instance; no other code changes its phase.

An instance runs one sandbox after another. Each reset begins the next generation, and a sandbox is a generation
with an owner. All owners of an instance are of one tenant. Plain data: no I/O, no clock, no tasks.
"""

from __future__ import annotations

import enum
from _operator import _compare_digest as compare_digest

from sandlot_contract import phases

from .ends import is_kept, is_late
from .errors import ApiError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Unpack

    from .ends import Conditions, End
    from .record import Record


class Phase(enum.Enum):
    """Phase of the instance."""

    STARTING = enum.auto()  # no command has run yet: unclaimed, or claimed before a restart or reset
    WARM = enum.auto()
    CLAIMING = enum.auto()  # a claim is being applied; it counts once all of it is in force
    AWAITING = enum.auto()  # claimed; no command runs before the checkpoint's files arrive
    RESTORING = enum.auto()  # the files are arriving
    CLAIMED = enum.auto()
    RESETTING = enum.auto()  # being emptied, for its owner or for the next one
    ENDED = enum.auto()
    FAILED = enum.auto()


# Phase -> its name in the contract. A claim in progress may still fail: a gateway that saw the new owner too early
# would count the instance as both claimed and free.
CONTRACT_PHASES = {
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


class Outcome(enum.Enum):
    """Outcome of an event."""

    NEWS = enum.auto()
    KNOWN = enum.auto()
    LATE = enum.auto()  # about a sandbox that has ended since
    IMPOSSIBLE = enum.auto()  # the event cannot happen in this phase; nothing has changed


class InstanceState:
    """The instance's phase and `record`, the part that survives the process.

    Only this class changes the record (except its egress policy); the driver writes it to disk. Methods that raise
    ApiError have changed nothing.
    """

    def __init__(self, record: Record) -> None:
        self.record = record
        self.phase = Phase.STARTING if record.verdict is None else Phase.ENDED
        self.impossible: str | None = None  # the last event that cannot happen in its phase
        self.keeps = False  # the reset keeps the owner
        self.used = record.claim is not None  # by its owner; before a restart it may have been

    @property
    def over(self) -> bool:
        return self.phase is Phase.ENDED or self.phase is Phase.FAILED

    @property
    def claiming(self) -> bool:
        """True while a claim is being applied, which may still fail."""
        return self.phase is Phase.CLAIMING

    @property
    def restoring(self) -> bool:
        """True if the instance is claimed and the files of its checkpoint have not all arrived."""
        return self.phase is Phase.AWAITING or self.phase is Phase.RESTORING

    @property
    def uses(self) -> int:
        """Number of generations that had an owner; a claim in progress may still fail and does not count."""
        claiming = self.phase is Phase.CLAIMING and self.record.claim is not None
        return self.record.uses - claiming

    @property
    def bound_to(self) -> str | None:
        """The tenant of all owners so far, the only one that may claim the instance again."""
        return self.record.bound_to if self.uses else None

    # Start.

    def built(self) -> Outcome:
        """Record that a first command has run: move to WARM, or CLAIMED if the instance has an owner."""
        if self.over:
            return Outcome.LATE
        if self.phase is not Phase.STARTING:
            return self._cannot("built")
        self.phase = Phase.WARM if self.record.claim is None else Phase.CLAIMED
        return Outcome.NEWS

    # Ownership.

    def claim(self, claim: dict[str, Any], *, generation: int | None, now: float) -> bool:
        """Claim by compare-and-set; return True if this claim wins now (CLAIMING), False if it is already held."""
        self.check_not_ended()
        record, held = self.record, self.record.claim
        if held is None and self.phase is not Phase.WARM:
            raise starting("the sandbox is not ready yet: try again after Retry-After")
        if self.phase is Phase.CLAIMING:  # the driver applies one claim at a time
            self._cannot("claim")
            raise starting("another claim is in progress: try again after Retry-After")
        self._check_generation(generation)
        if held is None:
            self._check_tenant(claim)
            record.own(claim, now=now)
            self.phase, self.used = Phase.CLAIMING, False
            return True
        if compare_digest(held["token"], claim["token"]) and held == claim:
            return False
        extra: dict[str, Any] = {}
        if claim["tenant"] is not None and claim["tenant"] == held["tenant"]:
            extra["sandbox_id"] = held["sandbox_id"]
        raise ApiError(409, "already_claimed", "this instance has another owner: claim another one", **extra)

    def laid(self, image: dict[str, Any] | None) -> None:
        """Record the image that is below the root now; a reset keeps it, a failed claim lays the earlier one again."""
        self.record.image = image

    def claimed(self) -> Outcome:
        """Record that the whole claim is in force: move to CLAIMED, or AWAITING if it restores files."""
        if self.over:
            return Outcome.LATE
        if self.phase is not Phase.CLAIMING or self.record.claim is None:
            return self._cannot("claimed")
        self.phase = Phase.AWAITING if self.record.claim["restore"] else Phase.CLAIMED
        return Outcome.NEWS

    def claim_failed(self) -> Outcome:
        """Move back to WARM, since a claim that failed must not block others."""
        if self.over:
            return Outcome.LATE
        if self.phase is not Phase.CLAIMING:
            return self._cannot("claim_failed")
        self.record.withdraw()
        self.phase = Phase.WARM
        return Outcome.NEWS

    # Restore of a checkpoint.

    def restore(self) -> None:
        """Begin to restore: move to RESTORING. Raises ApiError."""
        self.check_not_ended()
        if self.phase is not Phase.AWAITING:
            text = "files can be restored only once, and only into a sandbox claimed with `restore`"
            raise ApiError(409, "conflict", text)
        self.phase = Phase.RESTORING

    def restored(self, *, generation: int) -> Outcome:
        """Record that all files have arrived: move to CLAIMED."""
        if self.over or generation != self.record.generation:
            return Outcome.LATE
        if self.phase is not Phase.RESTORING:
            return self._cannot("restored")
        self.phase = Phase.CLAIMED
        return Outcome.NEWS

    # Reset.

    def reset(self, *, keep_claim: bool, generation: int | None, overlay: bool) -> dict[str, Any] | None:
        """Begin a reset (RESETTING) and return the claim that it keeps. Without `overlay` it raises a 409."""
        self.check_not_ended()
        self._check_generation(generation)
        if self.phase is not Phase.WARM and self.phase not in OWNED:
            raise starting("the sandbox is not ready yet: try again after Retry-After")
        if self.record.last and not keep_claim:
            raise ApiError(409, "last_generation", "this instance ends with its owner: end it instead")
        if not overlay:
            why = "the root is not an overlay, so this sandbox cannot be reset: create another"
            raise ApiError(409, "no_overlay", why)
        kept = self.record.claim if keep_claim else None
        if kept is not None and kept["restore"]:
            text = "a sandbox from a checkpoint cannot be reset, as its files are not kept: create another"
            raise ApiError(409, "conflict", text)
        self.phase, self.keeps = Phase.RESETTING, kept is not None
        self.used = self.used or self.keeps  # only the owner asks to keep it
        return kept

    def emptied(self) -> Outcome:
        """Record that the reset's proof holds (STARTING); NEWS if no owner keeps the instance, else KNOWN."""
        if self.over:
            return Outcome.LATE
        if self.phase is not Phase.RESETTING:
            return self._cannot("emptied")
        self.phase = Phase.STARTING
        if self.keeps:
            return Outcome.KNOWN
        self.record.generation += 1
        self.record.disown()
        return Outcome.NEWS

    # End.

    def retire(self) -> bool:
        """Have the instance end with its owner, so that no reset is for a next one; return False if it has none."""
        self.record.last = not self.over and self.record.claim is not None
        return self.record.last

    def end(self, end: End, **conditions: Unpack[Conditions]) -> Outcome:
        """End the instance; the first end wins. Raises 409 `claimed` where its owner keeps it."""
        if self.over:
            return Outcome.KNOWN
        if is_late(conditions, self.record.generation):
            return Outcome.LATE
        if (claim := self.record.claim) is not None and is_kept(conditions, claim, used=self.used):
            text = "this instance has an owner that the end's conditions exclude"
            raise ApiError(409, "claimed", text, sandbox_id=claim["sandbox_id"])
        self.phase = Phase.FAILED if end.failed else Phase.ENDED
        self.record.verdict, self.record.message = end.verdict, end.message
        return Outcome.NEWS

    def ends_after_reset(self, **conditions: Unpack[Conditions]) -> bool:
        """Return whether an end will apply that waits for the reset in progress."""
        claim = self.record.claim if self.keeps else None
        generation = self.record.generation + (not self.keeps)
        return not is_late(conditions, generation) and not is_kept(conditions, claim, used=self.used)

    # Admission.

    def gate(self) -> None:
        """Check that the owner may use the instance, and note that it does. Raises 410 or 503."""
        if self.phase is not Phase.CLAIMED:
            self.check_not_ended()
            if self.restoring:
                raise starting("the sandbox's files are being restored: try again after Retry-After")
            raise starting("the sandbox is still starting: try again after Retry-After")
        self.used = True

    def owned(self) -> dict[str, Any]:
        """Return the owner's claim. Raises 410, or 409 if there is none."""
        self.check_not_ended()
        if self.phase not in OWNED or self.record.claim is None:
            raise ApiError(409, "not_claimed", "this instance has no owner: claim it first")
        return self.record.claim

    def check_not_ended(self) -> None:
        """Raise a 410 if the instance has ended."""
        if self.over:
            raise ApiError(410, "ended", "the sandbox has ended: create another", verdict=self.record.verdict)

    # Helpers.

    def _check_generation(self, generation: int | None) -> None:
        """Check that the caller means the current generation; None means any."""
        present = self.record.generation
        if generation is not None and generation != present:
            text = f"this instance is at generation {present}: read its state and name that one"
            raise ApiError(409, "stale_generation", text, field="generation", generation=present)

    def _check_tenant(self, claim: dict[str, Any]) -> None:
        """Check that the claim is of the tenant that used the instance before, if one did."""
        if self.uses and claim["tenant"] != self.bound_to:
            text = "another tenant used this instance before: claim another one"
            raise ApiError(409, "bound", text, bound_to=self.bound_to)

    def _cannot(self, event: str) -> Outcome:
        self.impossible = event
        return Outcome.IMPOSSIBLE


def starting(message: str) -> ApiError:
    """Return a 503 for a request that came too early."""
    return ApiError(503, "starting", message, headers=(("Retry-After", "1"),))
