"""Lives of sandboxes at several gateways, under every order of messages that hypothesis thinks of.

Calls and words are late, lost, repeated and out of order; gateways are killed at any moment, sidecars die. The parts
under test are the gateway's own: only the wire and the machine below are the world's.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sandlot_gateway.core.slot import Phase
from sandlot_gateway.sandboxes import Spec

from tests.gateway.api_server import List, Watch
from tests.gateway.lives import World
from tests.gateway.lives_gateway import Gateway
from tests.gateway.lives_messages import ANOTHER_TENANT, TENANT, Call, Sidecar, Word

choices = st.integers(0, 1 << 16)


class LivesModel(RuleBasedStateMachine):
    world: World

    @initialize(gateways=st.integers(1, 3), recycles=st.booleans())
    def begin(self, gateways: int, recycles: bool) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.world = World(Path(self.directory.name), gateways=gateways, recycles=recycles)

    # What callers do.

    @rule(some=st.lists(choices, min_size=1, max_size=3))
    def create(self, some: list[int]) -> None:
        for choice in some:
            tenant = pick([TENANT, ANOTHER_TENANT], choice >> 8)
            pick(self.world.gateways, choice).create(tenant=tenant)

    @precondition(lambda self: self.live())
    @rule(choice=choices)
    def delete(self, choice: int) -> None:
        """At whatever gateway knows it."""
        gateway, sandbox = pick(self.live(), choice)
        gateway.delete(sandbox)

    # What the network does.

    @rule(some=st.lists(choices, min_size=1, max_size=10))
    def much_arrives(self, some: list[int]) -> None:
        """In some order, and all of it whole."""
        for choice in some:
            under_way = [*self.world.words, *self.world.calls, *self.world.losses, *self.sidecars("starting")]
            under_way += self.world.backlogs()
            if not under_way:
                return
            match pick(under_way, choice):
                case Word() as word:
                    self.world.words.remove(word)
                    self.world.hear(word)
                case Call(arrived=False) as call:
                    self.world.arrive(call)
                case Call() as call:
                    self.world.give_answer(call)
                case Sidecar() as sidecar:
                    self.world.get_ready(sidecar)
                case Watch() | List() as read:
                    self.world.tell(read)
                case loss:
                    self.world.losses.remove(loss)
                    self.world.see(*loss)

    @precondition(lambda self: any(not call.arrived for call in self.world.calls))
    @rule(choice=choices)
    def call_arrives(self, choice: int) -> None:
        self.world.arrive(pick([call for call in self.world.calls if not call.arrived], choice))

    @precondition(lambda self: any(call.arrived for call in self.world.calls))
    @rule(choice=choices)
    def answer_arrives(self, choice: int) -> None:
        self.world.give_answer(pick([call for call in self.world.calls if call.arrived], choice))

    @precondition(lambda self: self.world.calls)
    @rule(choice=choices)
    def call_is_lost(self, choice: int) -> None:
        """Before it arrived or after. A launch of which nobody hears is none."""
        self.world.lose_call(pick(self.world.calls, choice))

    @precondition(lambda self: any(call.kind == "claim" for call in self.world.calls))
    @rule(choice=choices)
    def claims_answer_is_lost(self, choice: int) -> None:
        """The sidecar has an owner, and whoever asked does not know."""
        call = pick([call for call in self.world.calls if call.kind == "claim"], choice)
        if not call.arrived:
            self.world.arrive(call)
        self.world.lose_call(call)

    @precondition(lambda self: self.world.words)
    @rule(choice=choices, again=st.booleans())
    def word_arrives(self, choice: int, again: bool) -> None:
        word = pick(self.world.words, choice)
        if not again:
            self.world.words.remove(word)
        self.world.hear(word)

    @precondition(lambda self: self.world.words)
    @rule(choice=choices)
    def word_is_lost(self, choice: int) -> None:
        self.world.words.remove(pick(self.world.words, choice))

    @precondition(lambda self: self.world.losses)
    @rule(choice=choices)
    def loss_is_seen(self, choice: int) -> None:
        loss = pick(self.world.losses, choice)
        self.world.losses.remove(loss)
        self.world.see(*loss)

    # What sidecars do.

    @precondition(lambda self: self.sidecars("starting"))
    @rule(choice=choices)
    def gets_ready(self, choice: int) -> None:
        self.world.get_ready(pick(self.sidecars("starting"), choice))

    @precondition(lambda self: self.sidecars("warm", "claimed"))
    @rule(choice=choices)
    def heartbeat(self, choice: int) -> None:
        self.world.speak(pick(self.sidecars("warm", "claimed"), choice), "heartbeat")

    @precondition(lambda self: self.sidecars("starting", "warm", "claimed"))
    @rule(choice=choices, word=st.sampled_from([None, "deadline", "oom"]))
    def dies(self, choice: int, word: str | None) -> None:
        sidecar = pick(self.sidecars("starting", "warm", "claimed"), choice)
        self.world.die(sidecar, word=word if sidecar.phase == "claimed" else None)

    # What happens to gateways.

    @rule(seconds=st.sampled_from([0.1, 2.0, 6.0, 31.0, 61.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @rule(choice=choices, rarely=st.integers(0, 7))
    def gateway_is_killed(self, choice: int, rarely: int) -> None:
        if not rarely:
            self.world.kill(pick(self.world.gateways, choice))

    # What must hold.

    @invariant()
    def quotas_count_what_lives(self) -> None:
        """Each live sandbox once, whatever was late, lost or repeated."""
        for gateway in self.world.gateways if hasattr(self, "world") else ():
            lives = Counter(sandbox.tenant for sandbox in gateway.directory.live())
            for tenant in (TENANT.name, ANOTHER_TENANT.name):
                size = Spec(name="x", image="host").amounts()
                assert gateway.directory.holdings.of(tenant) == size.times(lives[tenant])

    def teardown(self) -> None:
        """From here on all goes well: every create ends, every sandbox is known to all, and what is deleted is gone."""
        if not hasattr(self, "world"):
            return
        try:
            self.all_goes_well()
            self.compare()
            self.all_are_deleted()
        finally:
            self.world.close()
            self.directory.cleanup()

    def all_goes_well(self) -> None:
        for spent in range(5, 305, 5):
            self.world.quiet()
            self.world.pass_time(5.0)
            if not (self.world.calls or self.world.words or self.world.losses):
                for sidecar in self.sidecars("warm", "claimed"):
                    self.world.speak(sidecar, "heartbeat")
                self.world.quiet()
                waits = [sandbox for _, sandbox in self.live() if sandbox.status == "PENDING"]
                # A gateway gives the controller 15 s to tell why a pod died.
                if not waits and not self.world.calls and spent > 15:
                    return
        raise AssertionError("it never comes to rest")

    def compare(self) -> None:
        owned = {sidecar.owner: sidecar for sidecar in self.sidecars("claimed")}
        assert len(owned) == len(self.sidecars("claimed")), "a sandbox owns two slots"
        for gateway in self.world.gateways:
            assert not gateway.counts["two_owners"]
            running = {one.id: one for one in gateway.directory.live()}
            assert {one.status for one in running.values()} <= {"RUNNING"}, "one waits for ever"
            assert set(running) == set(owned), f"a gateway does not know what runs: {running}, {owned}"
            for sandbox in running.values():
                assert sandbox.instance_id == owned[sandbox.id].instance_id
                assert sandbox.id not in self.world.answered
            phases = {
                sidecar.instance_id: slot.phase
                for sidecar in self.world.sidecars.values()
                if (slot := gateway.supply.slots.get(sidecar.instance_id)) is not None
            }
            for instance_id, phase in phases.items():
                assert phase in (Phase.WARM, Phase.OWNED, Phase.UNREPORTED), (instance_id, phase)
                assert self.world.sidecars[instance_id].phase != "ended", (instance_id, phase)

    def all_are_deleted(self) -> None:
        while live := self.live():
            gateway, sandbox = live[0]
            gateway.delete(sandbox)
            self.world.quiet()
        self.world.pass_time(120.0)
        self.all_goes_well()
        assert not self.sidecars("claimed")
        for gateway in self.world.gateways:
            assert (gateway.supply.waiting, gateway.supply.starting) == (0, 0)
            assert not gateway.directory.live()

    # Inside.

    def live(self) -> list[tuple[Gateway, Any]]:
        if not hasattr(self, "world"):
            return []
        return [(gateway, one) for gateway in self.world.gateways for one in gateway.directory.live()]

    def sidecars(self, *phases: str) -> list[Sidecar]:
        return [one for one in self.world.sidecars.values() if one.phase in phases]


def pick(among: list[Any], choice: int) -> Any:
    return among[choice % len(among)]


TestLives = LivesModel.TestCase
TestLives.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
