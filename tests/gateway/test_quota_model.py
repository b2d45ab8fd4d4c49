"""Quotas without a gateway: what sandboxes hold under any order of their events, and creates against a rate."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sandlot_contract.ids import SandboxId
from sandlot_gateway.core.create_rates import CreateRates
from sandlot_gateway.core.holdings import Amounts
from sandlot_gateway.directory import Directory
from sandlot_gateway.engine.admission import Admission
from sandlot_gateway.engine.errors import QuotaReached
from sandlot_gateway.keys import Tenant
from sandlot_gateway.quotas import Limits, Quotas
from sandlot_gateway.sandboxes import Sandbox, Spec

TENANTS = ("small", "large")
LIMITS = {
    "small": Limits(sandboxes=2, cores=0.7, memory_gb=2, gpus=1),
    "large": Limits(sandboxes=5, cores=4.3, memory_gb=9, gpus=3),
}
choices = st.integers(0, 1 << 16)
specs = st.builds(
    Spec,
    name=st.just("x"),
    image=st.just("host"),
    cpu_cores=st.sampled_from([0.1, 0.3, 1.1]),
    memory_gb=st.sampled_from([0.1, 0.7, 2.0]),
    gpu_count=st.sampled_from([0, 0, 1, 2]),
)


def held(specs: list[Spec]) -> Amounts:
    """By plain sums in the units of `Amounts`."""
    return Amounts(
        len(specs),
        sum(round(spec.cpu_cores * 1000) for spec in specs),
        sum(round(spec.memory_gb * 2**30) for spec in specs),
        sum(spec.gpu_count for spec in specs),
    )


def fits(amounts: Amounts, limits: Limits, spec: Spec) -> bool:
    most = (limits.sandboxes, (limits.cores or 0) * 1000, (limits.memory_gb or 0) * 2**30, limits.gpus)
    asked = held([spec])
    return all(not a or h + a <= round(m or 0) for h, a, m in zip(amounts, asked, most, strict=True))


class Sandboxes(RuleBasedStateMachine):
    """The model is a plain list of what lives. Events of one sandbox repeat, and come after its end."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Directory(limit=3)
        quotas = Quotas()
        quotas.replace(msgspec.json.encode({name: limits.model_dump() for name, limits in LIMITS.items()}))
        self.admission = Admission(quotas, holdings=self.directory.holdings)
        self.all: list[Sandbox] = []
        self.lives: dict[str, tuple[str, Spec]] = {}

    def one(self, choice: int) -> Sandbox:
        return self.all[choice % len(self.all)]

    def add(self, spec: Spec, tenant: str) -> None:
        made = Sandbox(SandboxId(f"sb-{len(self.all)}"), tenant, spec, created_at=1.0, updated_at=1.0)
        self.directory.add(made)
        self.all.append(made)
        self.lives[made.id] = (tenant, spec)

    @rule(spec=specs, tenant=st.sampled_from(TENANTS))
    def is_asked_for(self, spec: Spec, tenant: str) -> None:
        now = held([one for owner, one in self.lives.values() if owner == tenant])
        try:
            self.admission.check(Tenant(tenant), spec)
        except QuotaReached as error:
            assert not fits(now, LIMITS[tenant], spec), error
            alone = not fits(Amounts(), LIMITS[tenant], spec)
            assert (error.field is not None, error.retry_after is not None) == (alone, not alone)
        else:
            assert fits(now, LIMITS[tenant], spec)
            self.add(spec, tenant)

    @rule(spec=specs, tenant=st.sampled_from(TENANTS))
    def is_found(self, spec: Spec, tenant: str) -> None:
        """At another gateway, or after a restart: it exists already, whatever the quotas are."""
        self.add(spec, tenant)

    @precondition(lambda self: self.all)
    @rule(choice=choices, spec=specs)
    def runs(self, choice: int, spec: Spec) -> None:
        """Its claim may say another size than the request of this gateway's caller."""
        sandbox = self.one(choice)
        if sandbox.live:
            sandbox.spec = spec
            self.directory.running(sandbox, address="unix:/x", token="t")
            if sandbox.id in self.lives:
                self.lives[sandbox.id] = (sandbox.tenant, spec)

    @precondition(lambda self: self.all)
    @rule(choice=choices)
    def waits_again(self, choice: int) -> None:
        sandbox = self.one(choice)
        if sandbox.live:
            self.directory.pending_again(sandbox)

    @precondition(lambda self: self.all)
    @rule(choice=choices, verdict=st.sampled_from(["deleted", "oom", "start_failed"]))
    def ends(self, choice: int, verdict: str) -> None:
        sandbox = self.one(choice)
        self.directory.end(sandbox, verdict=verdict)
        self.lives.pop(sandbox.id, None)

    @precondition(lambda self: self.all)
    @rule(choice=choices)
    def is_dropped(self, choice: int) -> None:
        sandbox = self.one(choice)
        self.directory.drop(sandbox)
        self.lives.pop(sandbox.id, None)

    @invariant()
    def what_lives_is_held(self) -> None:
        for tenant in TENANTS:
            mine = [spec for owner, spec in self.lives.values() if owner == tenant]
            assert self.directory.holdings.of(tenant) == held(mine)
        assert self.directory.total_live == len(self.lives)


TestSandboxes: Any = Sandboxes.TestCase
TestSandboxes.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)


@given(
    st.sampled_from([0.1, 0.3, 7.0, 1000.0]),
    st.integers(1, 5),
    st.lists(st.sampled_from([0.0, 0.01, 0.9, 3.0, 40.0]), min_size=1, max_size=60),
)
def test_no_time_has_more_creates_than_the_burst_and_the_rate(
    rate: float, burst: int, pauses: list[float]
) -> None:
    rates, now, begun = CreateRates(), 100.0, list[float]()
    for pause in pauses:
        now += pause
        wait = rates.wait("t", rate=rate, burst=burst, now=now)
        if not wait:
            rates.spend("t", rate=rate, now=now)
            begun.append(now)
        else:
            assert not rates.wait("t", rate=rate, burst=burst, now=now + wait), "the time that it was told"
            assert rates.wait("t", rate=rate, burst=burst, now=now + wait * 0.9), "and none before"
        assert rates.wait("another", rate=rate, burst=burst, now=now) == 0
    for first, at in enumerate(begun):
        for last in range(first, len(begun)):
            assert last - first + 1 <= burst + rate * (begun[last] - at) + 1e-5
