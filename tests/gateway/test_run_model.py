"""Every order of what holders, gateways and time do to a run's lease, and two gateways that share one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sandlot_contract.ids import SandboxId
from sandlot_gateway.backends.local.runs import LocalRuns
from sandlot_gateway.core import runs
from sandlot_gateway.core.backend import BackendError, Unavailable
from sandlot_gateway.core.runs import Lease, RunId, RunRefusal, RunRefused, RunRequest, RunState, RunUnknown
from sandlot_gateway.directory import Directory
from sandlot_gateway.engine.run_limit import MOST, TooManyRuns
from sandlot_gateway.engine.runs import Runs
from sandlot_gateway.sandboxes import Sandbox, Spec

RUN = RunId("r")
GRACE = 8.0
HOLDERS = st.sampled_from(["a", "b", "c"])


class LeaseMachine(RuleBasedStateMachine):
    """One lease; the model keeps when each holder got it, and when its current one was last heard."""

    @initialize()
    def begin_empty(self) -> None:
        self.now = 1000.0
        self.listening_since = 1000.0
        self.lease: Lease | None = None
        self.epochs: dict[str, int] = {}  # of each holder's last success
        self.heard_at = 0.0
        self.last_epoch = 0
        self.sandboxes: list[int] = []  # their epochs

    @rule(holder=HOLDERS, take_over=st.booleans(), end_sandboxes=st.booleans())
    def begin(self, holder: str, take_over: bool, end_sandboxes: bool) -> None:
        old = self.lease
        asked = RunRequest(holder, GRACE, take_over=take_over, end_sandboxes=end_sandboxes)
        try:
            lease = runs.begun(old, asked, tenant="t", run_id=RUN, now=self.now)
        except RunRefused as error:
            assert error.code is RunRefusal.HELD
            assert not take_over
            assert old is not None
            assert old.active
            assert old.holder != holder
            return
        if old is not None and old.active and old.holder == holder:
            assert lease.epoch == old.epoch
        else:
            assert lease.epoch > self.last_epoch
            keeps = old is not None and old.active and not end_sandboxes
            assert {runs.end_of(lease, epoch) is None for epoch in self.alive()} <= {keeps}
        self.lease, self.epochs[holder], self.last_epoch = lease, lease.epoch, lease.epoch
        self.heard_at = self.now

    @rule(holder=HOLDERS)
    def renew(self, holder: str) -> None:
        if self.lease is None or holder not in self.epochs:
            return
        holds = self.lease.active and self.lease.holder == holder
        try:
            self.lease = runs.renewed(self.lease, self.epochs[holder], now=self.now)
        except RunRefused as error:
            assert not holds
            assert (error.code is RunRefusal.TAKEN_OVER) == (self.lease.epoch != self.epochs[holder])
        else:
            assert holds
            self.heard_at = self.now

    @rule(holder=HOLDERS)
    def end(self, holder: str) -> None:
        if self.lease is None or holder not in self.epochs:
            return
        try:
            self.lease = runs.ended(self.lease, self.epochs[holder], now=self.now)
        except RunRefused:
            assert self.lease.epoch != self.epochs[holder]

    @rule(seconds=st.floats(min_value=0.1, max_value=GRACE))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def gateways_were_away(self) -> None:
        self.now += 3 * GRACE
        self.listening_since = self.now

    @rule()
    def expire(self) -> None:
        if self.lease is None:
            return
        was = self.lease
        self.lease = runs.expired(was, now=self.now, listening_since=self.listening_since)
        silent = self.now - max(self.heard_at, self.listening_since) > GRACE
        assert (self.lease.state is RunState.LOST) == (was.state is RunState.LOST or (was.active and silent))

    @rule(holder=HOLDERS)
    def create(self, holder: str) -> None:
        if self.lease is None or holder not in self.epochs:
            return
        try:
            runs.check(self.lease, self.epochs[holder])
        except RunRefused:
            assert not (self.lease.active and self.lease.holder == holder)
        else:
            self.sandboxes.append(self.epochs[holder])

    def alive(self) -> list[int]:
        lease = self.lease
        return [] if lease is None else [one for one in self.sandboxes if runs.end_of(lease, one) is None]

    @invariant()
    def sandboxes_live_only_in_an_active_run(self) -> None:
        if getattr(self, "lease", None) is not None and self.lease is not None and not self.lease.active:
            assert not self.alive()


LeaseMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestLease = LeaseMachine.TestCase


class Gateways:
    """Two gateways over one store, with a clock that the test moves."""

    def __init__(self, directory: Path) -> None:
        self.now = 1_000_000.0
        self.ended: list[tuple[str, str]] = []
        self.failing = False
        self.writes = 0
        shared = LocalRuns(directory / "runs.json", clock=lambda: self.now)
        self.store = shared
        self.directories = [Directory(), Directory()]
        self.parts = [
            Runs(
                _Store(shared, self),
                directory=directory,
                end=self._end(directory),
                keep=3600.0,
            )
            for directory in self.directories
        ]

    def _end(self, directory: Directory) -> Callable[[Sandbox, str, str], object]:
        def end(sandbox: Sandbox, verdict: str, why: str) -> None:
            directory.end(sandbox, verdict=verdict, message=why)
            self.ended.append((sandbox.id, verdict))

        return end

    def add(self, name: str, *, epoch: int, to: int) -> None:
        spec = Spec(name, "host", run=RUN, run_epoch=epoch)
        self.directories[to].add(
            Sandbox(SandboxId(name), "t", spec, created_at=self.now, updated_at=self.now)
        )

    async def pass_by(self, seconds: float) -> None:
        """Let time pass, while both look every second."""
        until = self.now + seconds
        while self.now < until:
            self.now += 1.0
            for part in self.parts:
                for step in (part.flush, part.look):
                    try:
                        await step()
                    except BackendError:
                        assert self.failing


class _Store:
    def __init__(self, shared: LocalRuns, world: Gateways) -> None:
        self._shared = shared
        self._world = world

    def now(self) -> float:
        return self._world.now

    async def all(self, *, answered: Callable[[], object] = lambda: None) -> list[Lease]:
        self._fail()
        return await self._shared.all(answered=answered)

    async def find(self, tenant: str, run_id: RunId) -> Lease | None:
        self._fail()
        return await self._shared.find(tenant, run_id)

    async def change(self, tenant: str, run_id: RunId, change: runs.Change) -> Lease | None:
        self._fail()
        before = await self._shared.find(tenant, run_id)
        after = await self._shared.change(tenant, run_id, change)
        self._world.writes += before != after
        return after

    def _fail(self) -> None:
        if self._world.failing:
            raise Unavailable("no API server")


@pytest.fixture
def gateways(tmp_path: Path) -> Gateways:
    return Gateways(tmp_path)


async def held(gateways: Gateways, grace: float, holder: str = "a", *, at: int = 0) -> Lease:
    return await gateways.parts[at].begin("t", RUN, RunRequest(holder, grace, take_over=True))


async def test_a_run_lives_while_any_gateway_hears_it(gateways: Gateways) -> None:
    lease = await held(gateways, 60.0)
    gateways.add("box", epoch=lease.epoch, to=1)
    gateways.writes = 0
    for number in range(200):  # as of several processes
        await gateways.pass_by(2)
        await gateways.parts[number % 2].renew("t", RUN, lease.epoch)
    assert gateways.writes <= 200 / 5  # renewals
    heard_at = gateways.now
    while not gateways.ended:
        await gateways.pass_by(1)
    assert 60 < gateways.now - heard_at <= 66
    assert gateways.ended == [("box", "run_lost")]


async def test_an_outage_of_the_store_loses_no_run(gateways: Gateways) -> None:
    lease = await held(gateways, 60.0)
    gateways.add("box", epoch=lease.epoch, to=0)
    await gateways.pass_by(2)
    gateways.failing = True
    await gateways.pass_by(200)
    with pytest.raises(Unavailable):
        await gateways.parts[0].renew("t", RUN, lease.epoch)
    gateways.failing = False
    await gateways.pass_by(59)
    assert not gateways.ended
    await gateways.parts[1].renew("t", RUN, lease.epoch)
    await gateways.pass_by(59)
    assert not gateways.ended
    await gateways.pass_by(5)
    assert gateways.ended == [("box", "run_lost")]


async def test_a_gateway_that_has_not_read_yet_refuses_no_new_holder(gateways: Gateways) -> None:
    """It would take a resumed trainer for one that has lost its run."""
    first, second = gateways.parts
    old = await held(gateways, 60.0)
    assert await second.admit("t", RUN, old.epoch) == old.epoch  # and has read it
    new = await held(gateways, 60.0, "b")
    assert (await second.renew("t", RUN, new.epoch)).holder == "b"
    assert await second.admit("t", RUN, None) == new.epoch
    with pytest.raises(RunRefused, match="another holder"):
        await second.renew("t", RUN, old.epoch)
    await first.finish("t", RUN, new.epoch)
    await gateways.pass_by(1)
    with pytest.raises(RunRefused, match="has ended"):
        await second.admit("t", RUN, None)


async def test_a_sandbox_whose_lease_is_gone_ends(gateways: Gateways) -> None:
    lease = await held(gateways, 600.0)
    gateways.add("box", epoch=lease.epoch, to=1)
    await gateways.store.change("t", RUN, lambda there: None)
    await gateways.pass_by(runs.UNKNOWN_SECONDS - 1)
    assert not gateways.ended
    await gateways.pass_by(5)
    assert gateways.ended == [("box", "run_lost")]
    with pytest.raises(RunUnknown):
        await gateways.parts[0].renew("t", RUN, lease.epoch)


async def test_leases_do_not_pile_up(gateways: Gateways) -> None:
    part = gateways.parts[0]
    for number in range(MOST):
        await part.begin("t", RunId(f"r{number}"), RunRequest("a", 600.0))
    with pytest.raises(TooManyRuns):
        await part.begin("t", RunId("more"), RunRequest("a", 600.0))
    await part.finish("t", RunId("r7"), None)
    await part.begin("t", RunId("more"), RunRequest("a", 600.0))
    assert await gateways.store.find("t", RunId("r7")) is None
    await gateways.pass_by(700)
    assert {lease.state for lease in await part.of_tenant("t")} == {RunState.LOST}
    gateways.now += 3600
    await gateways.pass_by(40)
    assert await gateways.store.all() == []
