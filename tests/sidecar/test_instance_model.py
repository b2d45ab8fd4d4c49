"""An instance's life against a model of its driver: claims that fail, resets that do, restarts, ends that come late."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sandlot_sidecar.core import ends
from sandlot_sidecar.core.errors import ApiError
from sandlot_sidecar.core.instance import OWNED, InstanceState, Outcome, Phase
from sandlot_sidecar.core.record import Record

TENANTS = {"a": "t", "b": "t", "c": "u", "d": None}


def claim_of(sandbox_id: str, *, restore: bool) -> dict[str, Any]:
    return {
        "sandbox_id": sandbox_id, "token": sandbox_id, "tenant": TENANTS[sandbox_id], "restore": restore,
        "timeout": None,
    }  # fmt: skip


class InstanceModel(RuleBasedStateMachine):
    """What the driver does in one go is one rule; what it waits for is another, and others come in between."""

    owners = st.sampled_from(sorted(TENANTS))
    rarely = st.sampled_from(
        [False] * 40 + [True]
    )  # else most lives would be over before anything has happened

    def __init__(self) -> None:
        super().__init__()
        self.life = InstanceState(Record())
        self.disk: dict[str, Any] = self.life.record.document()
        self.served: dict[int, str] = {}  # who was told to own a generation
        self.uses: list[int] = []  # generations whose deadline, idle timeout or files may still come
        self.verdict: str | None = None
        self.image: dict[str, Any] | None = None  # below the root now
        self.image_on_disk: dict[str, Any] | None = None

    def phase(self, *phases: Phase) -> bool:
        return self.life.phase in phases

    def store(self) -> None:
        self.disk = self.life.record.document()
        self.image_on_disk = self.image

    @precondition(lambda self: self.phase(Phase.STARTING))
    @rule()
    def is_built(self) -> None:
        assert self.life.built() is Outcome.NEWS
        assert self.phase(Phase.WARM if self.life.record.claim is None else Phase.CLAIMED)

    # The driver takes one claim after the other.
    @precondition(lambda self: not self.phase(Phase.CLAIMING))
    @rule(owner=owners, restore=st.booleans(), generation=st.sampled_from([None, None, 1, 2]))
    def claim(self, owner: str, restore: bool, generation: int | None) -> None:
        claim, present = claim_of(owner, restore=restore), self.life.record.generation
        held = self.life.record.claim
        try:
            won = self.life.claim(claim, generation=generation, now=1.0)
        except ApiError as error:
            strange = any(TENANTS[one] != TENANTS[owner] for one in self.served.values())
            free = self.phase(Phase.WARM) and generation in (None, present)
            assert (error.code == "bound") == (free and strange), error.code
            assert strange or not free, error.code
            return
        assert not self.life.over
        assert generation in (None, present)
        if won:
            assert held is None
            assert present not in self.served, "a generation has had an owner already"
            assert self.phase(Phase.CLAIMING)
        else:
            assert held == claim

    @precondition(lambda self: self.phase(Phase.CLAIMING))
    @rule(image=st.sampled_from([None, {"id": "x"}, {"id": "y"}]))
    def image_is_laid(self, image: dict[str, Any] | None) -> None:
        self.image = image
        self.life.laid(image)

    @precondition(lambda self: self.phase(Phase.CLAIMING))
    @rule(holds=st.booleans())
    def claim_is_applied(self, holds: bool) -> None:
        if not holds:
            assert self.life.claim_failed() is Outcome.NEWS
            assert self.phase(Phase.WARM)
            return
        self.store()
        assert self.life.claimed() is Outcome.NEWS
        assert self.life.record.claim is not None
        self.served[self.life.record.generation] = self.life.record.claim["sandbox_id"]
        self.uses.append(self.life.record.generation)

    @rule()
    def files_come(self) -> None:
        awaited = self.phase(Phase.AWAITING)
        try:
            self.life.restore()
        except ApiError:
            assert not awaited
        else:
            assert awaited

    @precondition(lambda self: self.phase(Phase.RESTORING))
    @rule()
    def files_are_there(self) -> None:
        assert self.life.restored(generation=self.life.record.generation) is Outcome.NEWS
        self.life.gate()

    @precondition(lambda self: not self.phase(Phase.RESETTING))
    @rule(keep=st.booleans(), overlay=st.sampled_from([True, True, False]))
    def reset(self, keep: bool, overlay: bool) -> None:
        may = self.phase(Phase.WARM, *OWNED)
        last = self.life.record.last
        try:
            kept = self.life.reset(keep_claim=keep, generation=None, overlay=overlay)
        except ApiError:
            return
        assert may
        assert keep or not last, "it has ended with its owner"
        assert overlay
        assert kept is None or (keep and kept == self.life.record.claim)

    @precondition(lambda self: self.phase(Phase.RESETTING))
    @rule(rarely=rarely)
    def reset_returns(self, rarely: bool) -> None:
        before, owner, keeps = self.life.record.generation, self.life.record.claim, self.life.keeps
        if rarely:
            self.end(ends.not_fresh(["a file"]))
            assert self.phase(Phase.FAILED)
            return
        heard = self.life.emptied()
        if keeps:
            assert heard is Outcome.KNOWN
            assert (self.life.record.generation, self.life.record.claim) == (before, owner)
        else:
            assert heard is Outcome.NEWS
            assert (self.life.record.generation, self.life.record.claim) == (before + 1, None)
            self.store()

    @precondition(lambda self: self.uses)
    @rule(
        choice=st.integers(0, 9),
        end=st.sampled_from([ends.DEADLINE, ends.IDLE, ends.main_ended(0)]),
        rarely=rarely,
    )
    def use_ends(self, choice: int, end: ends.End, rarely: bool) -> None:
        """Of whatever generation there ever was: its timer may have waited for a reset."""
        generation = self.uses[choice % len(self.uses)]
        if not rarely and generation == self.life.record.generation:
            return
        before = self.life.phase
        heard = self.end(end, generation=generation)
        if generation != self.life.record.generation:
            assert heard is not Outcome.NEWS
            assert self.life.phase is before

    @rule(
        rarely=rarely,
        end=st.sampled_from([ends.executor_lost(out_of_memory=False), ends.terminated(owned=True)]),
    )
    def is_lost(self, rarely: bool, end: ends.End) -> None:
        if rarely:
            self.end(end)

    @rule(owner=owners, only_unclaimed=st.booleans(), rarely=rarely)
    def is_unwanted(self, owner: str, only_unclaimed: bool, rarely: bool) -> None:
        if not rarely:
            return
        held, over = self.life.record.claim, self.life.over
        anothers = held is not None and (only_unclaimed or held["sandbox_id"] != owner)
        try:
            self.end(ends.unwanted(None), only_of=owner, only_unclaimed=only_unclaimed)
        except ApiError:
            assert anothers
            assert not over
        else:
            assert over or not anothers

    @precondition(lambda self: not self.phase(Phase.CLAIMING, Phase.RESETTING))
    @rule(rarely=rarely)
    def is_retired(self, rarely: bool) -> None:
        if not rarely:
            return
        # A process that has just been restarted has the owner that its file tells of.
        restarted = self.phase(Phase.STARTING) and self.life.record.generation in self.served
        owned = restarted or self.phase(*OWNED)
        if self.life.retire():
            assert owned
            self.store()
        else:
            assert not owned
            self.end(ends.unwanted(None))

    @rule(rarely=rarely)
    def process_is_restarted(self, rarely: bool) -> None:
        """It knows what is on disk. What its owner was not told of is no claim."""
        if not rarely:
            return
        record = Record()
        for name, value in self.disk.items():
            setattr(record, name, value)
        self.life, self.image = InstanceState(record), self.image_on_disk
        assert self.life.over == (self.verdict is not None)

    def end(self, end: ends.End, **conditions: Any) -> Outcome:
        heard = self.life.end(end, **conditions)
        if heard is Outcome.NEWS:
            assert self.verdict is None, "it ended twice"
            self.verdict = end.verdict
            self.store()
        return heard

    @invariant()
    def holds(self) -> None:
        life = self.life
        assert life.impossible is None
        if not life.over:
            assert life.uses == len(self.served)
            assert {life.bound_to} == ({TENANTS[one] for one in self.served.values()} or {None})
        assert life.record.image == self.image
        assert (life.record.verdict, life.over) == (self.verdict, self.verdict is not None)
        if life.phase in OWNED:
            assert life.record.claim is not None
            assert self.served.get(life.record.generation) == life.record.claim["sandbox_id"]
        if life.phase is Phase.WARM:
            assert life.record.claim is None
        if life.over:
            for event in (life.built, life.claimed, life.claim_failed, life.emptied):
                assert event() is Outcome.LATE

    def teardown(self) -> None:
        """Whatever it was: it can be ended, and is over then."""
        self.end(ends.unwanted(None))
        assert self.life.over
        assert self.verdict is not None


TestInstance = InstanceModel.TestCase
TestInstance.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
