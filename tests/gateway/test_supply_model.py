"""What SupplyCore decides about starts and waiting creates, under every order of events that hypothesis thinks of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from sandlot_contract.template import Template
from sandlot_gateway.core.instances import Instance, PoolSpec, by_size
from sandlot_gateway.core.reuse import Binding
from sandlot_gateway.core.slot import ReportOutcome
from sandlot_gateway.core.supply_events import (
    Asked,
    AskId,
    Destroyed,
    LaunchFailed,
    LaunchRefused,
    Looked,
    Offered,
    RoomMade,
    StartFailed,
    Taken,
    Withdrawn,
)

from tests.gateway.supply_checks import CheckedSupply
from tests.gateway.supply_world import BIG, BOUNDS, ONE, OTHER, OWN, SHARED, new_instance

tenants = st.sampled_from(["alpha", "beta"])
templates = st.sampled_from([ONE, OTHER, BIG])
ends = st.sampled_from(["start_failed", "image_pull", "node_lost", "deleted"])
choices = st.integers(0, 1 << 16)


class SupplyModel(CheckedSupply):
    # What happens.

    @rule(
        tenant=tenants, template=templates, pool=st.sampled_from([None, "shared"]), flags=st.integers(0, 31)
    )
    def ask(self, tenant: str, template: Template, pool: str | None, flags: int) -> None:
        self.names += 1
        ask = Asked(
            AskId(self.names), template, tenant, pool, bool(flags & 1), bool(flags & 2), not flags & 4
        )
        ask = replace(ask, lays_image=bool(flags & 8), run="r" if flags & 16 else "")
        self.asks[ask.ask] = ask
        self.step(ask)

    @precondition(lambda self: self.asks)
    @rule(choice=choices)
    def withdraw(self, choice: int) -> None:
        ask = pick(self.asks, choice)
        del self.asks[ask]
        self.withdrawn.add(ask)
        self.step(Withdrawn(ask))

    @rule(choice=choices)
    def withdraw_too_late(self, choice: int) -> None:
        self.step(Withdrawn(AskId(1_000_000 + choice)))

    @precondition(lambda self: self.launching())
    @rule(choice=choices, waits=st.booleans())
    def launch_returns(self, choice: int, waits: bool) -> None:
        start_id = pick(self.launching(), choice)
        start = self.starts[start_id]
        if waits and not start.told:
            self.world.begun_at[start.instance.id] = None
        self.launched(start_id)

    @precondition(lambda self: self.launching())
    @rule(choice=choices, refused=st.booleans(), refuse=st.booleans(), kind=st.booleans())
    def launch_does_not(self, choice: int, refused: bool, refuse: bool, kind: bool) -> None:
        start_id = pick(self.launching(), choice)
        if self.starts[start_id].told:
            return
        self.failed = self.starts.pop(start_id).instance.template
        if refused:
            self.step(LaunchRefused(start_id, "no room", 5.0, refuse and not kind, only_kind=kind))
        else:
            self.step(LaunchFailed(start_id, StartFailed("bad", error_type="START_FAILED")))
        self.failed = None

    @precondition(lambda self: self.untold())
    @rule(choice=choices, end=st.none() | ends, taken=st.booleans(), used=st.none() | tenants)
    def start_ends(self, choice: int, end: str | None, taken: bool, used: str | None) -> None:
        """Ready, lost, taken by another gateway, or used there: maybe before its launch has returned."""
        start_id = pick(self.untold(), choice)
        start = self.starts[start_id]
        start.told = True
        if start.returned:
            del self.starts[start_id]
        if end is not None:
            self.failed = start.instance.template
            self.lose(start.instance.id, end)
            self.failed = None
        elif taken:
            self.core.slots.report_owned(start.instance, 1, "sb-another")
            self.step(Taken(start.instance.id))
        else:
            self.offer(start.instance, used=used)

    @rule(spec=st.sampled_from([SHARED, OWN]), keeps=st.booleans())
    def pool_starts(self, spec: PoolSpec, keeps: bool) -> None:
        self.names += 1
        instance = new_instance(f"pool-{self.names}", spec.template, pool=spec.name)
        instance.keeps_image = keeps and self.some_keep_their_image
        self.count(instance, 1)
        self.unheard[instance.id] = instance

    def count(self, instance: Instance, number: int) -> None:
        """Its pool's start begins or ends."""
        self.world.starting[instance.pool or ""] += number
        self.world.keeping[instance.pool or ""] += number * instance.keeps_image

    @precondition(lambda self: self.unheard)
    @rule(choice=choices, ready=st.booleans(), used=st.none() | tenants)
    def pool_start_ends(self, choice: int, ready: bool, used: str | None) -> None:
        instance = self.unheard.pop(pick(self.unheard, choice))
        self.count(instance, -1)
        if ready:
            self.offer(instance, used=used)
        else:
            self.lose(instance.id, "start_failed")

    @precondition(lambda self: self.offered)
    @rule(choice=choices, taken=st.booleans())
    def warm_goes(self, choice: int, taken: bool) -> None:
        gone = pick(dict.fromkeys(sorted(self.offered)), choice)
        self.offered.discard(gone)
        if taken:
            slot = self.core.slots.get(gone)
            assert slot is not None
            heard = self.core.slots.report_owned(slot.instance, slot.generation, "sb-another")
            assert heard is ReportOutcome.NEWS
            self.step(Taken(gone))
        else:
            self.lose(gone, "node_lost")

    @precondition(lambda self: self.owned)
    @rule(choice=choices, used=st.none() | tenants)
    def claim_is_refused(self, choice: int, used: str | None) -> None:
        """Whoever had it gives it back. Its sidecar may have said that another tenant used it."""
        instance_id = pick(self.owned, choice)
        asked = self.owned.pop(instance_id)
        strange = instance_id not in self.bound and used not in (None, asked.tenant)
        if strange:
            assert used is not None
            self.bound[instance_id] = used
        binding = Binding(used, 1) if strange else None
        instance = self.core.slots.holds.put_back(self.holds.pop(instance_id), binding=binding)
        assert instance is not None
        self.offered.add(instance_id)
        self.step(Offered(instance))

    @precondition(lambda self: self.owned)
    @rule(choice=choices)
    def is_used_elsewhere(self, choice: int) -> None:
        """Another gateway's sandbox was faster, and has ended: the slot is reset for the next one of its tenant."""
        instance_id = pick(self.owned, choice)
        asked, hold = self.owned.pop(instance_id), self.holds.pop(instance_id)
        self.taken.append(hold)
        slot = self.core.slots.get(instance_id)
        assert slot is not None
        self.bound.setdefault(instance_id, asked.tenant)
        self.offered.add(instance_id)
        binding = Binding(self.bound[instance_id], 1)
        assert self.core.slots.report_warm(hold.instance, slot.generation + 1, binding) is ReportOutcome.NEWS
        self.step(Offered(hold.instance))

    @invariant()
    def one_that_was_taken_is_not_put_back(self) -> None:
        """By a create that knows nothing of it: the slot may be another create's by now."""
        for hold in self.taken:
            assert self.core.slots.holds.put_back(hold) is None

    @precondition(lambda self: self.owned)
    @rule(choice=choices)
    def owner_ends(self, choice: int) -> None:
        """Its slot is reset, for the next sandbox of its tenant."""
        self.end_owner(pick(self.owned, choice))

    @precondition(lambda self: self.leaving)
    @rule(choice=choices)
    def is_destroyed(self, choice: int) -> None:
        instance_id = pick(self.leaving, choice)
        del self.leaving[instance_id]
        self.core.slots.gone(instance_id)
        self.step(Destroyed(instance_id))

    @rule()
    def room(self) -> None:
        self.step(RoomMade())

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 10.0, 31.0, 61.0, 250.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.step(Looked())
        if seconds >= 1:
            self.looked()

    def looked(self) -> None:
        """A look was due."""

    # What must hold.

    @invariant()
    def bounds_hold(self) -> None:
        assert self.core.starting <= BOUNDS.max_starts
        assert self.core.waiting == len(self.asks)
        assert {instance.id for instance in self.core.slots.warm} == self.offered

    @invariant()
    def nobody_waits_beside_one_that_fits(self) -> None:
        for instance in self.core.slots.warm:
            for ask in self.asks.values():
                assert not self.fits(instance, ask) or self.waits_for_others(instance, ask)

    def waits_for_others(self, instance: Instance, ask: Asked) -> bool:
        """Whether the instance is kept from this create for those that wait for their images on its node."""
        return False

    def teardown(self) -> None:
        """From here on all goes well: every create ends, without waiting for a time to be over."""
        rounds = 0
        while self.asks or self.starts:
            rounds += 1
            assert rounds < 100, (self.asks, self.starts)
            self.step(RoomMade())
            for start_id in list(self.launching()):
                self.launched(start_id)
            for start_id in [one for one in self.untold() if one not in self.launching()]:
                self.offer(self.starts.pop(start_id).instance)
            for instance in list(self.unheard.values()):
                self.count(instance, -1)
                del self.unheard[instance.id]
                self.offer(instance)
        assert (self.core.starting, self.core.waiting) == (0, 0)
        self.now += BOUNDS.spare_seconds
        self.step(Looked())
        assert self.core.look_at() is None
        assert all(instance.pool for instance in self.core.slots.warm)


def pick(among: dict[Any, Any], choice: int) -> Any:
    return list(among)[choice % len(among)]


class SupplyOfAnyImageModel(SupplyModel):
    """A create gets an instance of its size, whatever its image."""

    kind = staticmethod(by_size)


class SupplyOfSomeThatKeepTheirImageModel(SupplyOfAnyImageModel):
    """Some instances of pools serve creates of their own image only."""

    some_keep_their_image = True


TestSupply = SupplyModel.TestCase
TestSupply.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestSupplyOfAnyImage = SupplyOfAnyImageModel.TestCase
TestSupplyOfAnyImage.settings = TestSupply.settings
TestSupplyOfSomeThatKeepTheirImage = SupplyOfSomeThatKeepTheirImageModel.TestCase
TestSupplyOfSomeThatKeepTheirImage.settings = TestSupply.settings
