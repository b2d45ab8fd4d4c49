"""A world of gateways and sidecars without a machine below: every call and word waits until a test lets it arrive."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sandlot_gateway.core.reuse import Binding
from sandlot_gateway.sidecars import ClaimAnswer

from tests.gateway.api_server import List, Watch
from tests.gateway.lives_gateway import Gateway
from tests.gateway.lives_messages import UNANSWERED, UNSENT, Call, Sidecar, VirtualTime, Word


class World:
    """`calls`, `words` and `losses` are under way: a test lets them arrive, in any order, or not at all."""

    gateway: type[Gateway] = Gateway

    def __init__(self, directory: Path, *, gateways: int, recycles: bool) -> None:
        self.recycles = recycles
        self.loop = VirtualTime()
        self.directory = directory
        self.sidecars: dict[str, Sidecar] = {}
        self.calls: list[Call] = []
        self.words: list[Word] = []
        self.losses: list[tuple[Gateway, str]] = []
        self.deleted: dict[str, Gateway] = {}  # by whom
        self.answered: set[str] = set()  # deleted ones whose caller has been told so
        self.numbers = 0
        self.made = 0
        self.gateways: list[Gateway] = []
        self.dead: list[Gateway] = []
        for _ in range(gateways):
            self.gateways.append(self.new_gateway())
        self.settle()

    def new_gateway(self, *, disk: Path | None = None) -> Gateway:
        """`disk`: of the one before it."""
        self.made += 1
        return self.gateway(self, disk or self.directory / str(self.made))

    def settle(self) -> None:
        """Until every task waits for the world or for time."""
        self.loop.run_until_complete(self.loop.rest())

    def pass_time(self, seconds: float) -> None:
        self.loop.now += seconds
        self.settle()

    def kill(self, gateway: Gateway, *, keep_disk: bool = False) -> None:
        """It says and hears nothing more, and another takes its place."""
        gateway.alive = False
        self.forget_deletes(gateway)
        self.dead.append(gateway)
        self.calls = [call for call in self.calls if call.gateway is not gateway or call.kind == "launch"]
        self.gateways[self.gateways.index(gateway)] = self.new_gateway(
            disk=gateway.disk if keep_disk else None
        )

    def forget_deletes(self, gateway: Gateway) -> None:
        """Those that had not come to the sidecar by then were not answered either.

        Nor those of other gateways' sandboxes: whoever made one may go on with it elsewhere, if its claim had no answer,
        and is told before the caller is. Nobody is told here; on Kubernetes gateways tell each other.
        """
        owned = {sidecar.owner for sidecar in self.sidecars.values()}
        for sandbox_id in [one for one, by in self.deleted.items() if by is gateway]:
            if sandbox_id in owned or sandbox_id not in gateway.made:
                del self.deleted[sandbox_id]
                self.answered.discard(sandbox_id)

    def close(self) -> None:
        for gateway in [*self.gateways, *self.dead]:
            gateway.alive = False
            self.loop.run_until_complete(gateway.close())
        self.loop.close()

    # What is under way, beside calls, words and losses.

    def backlogs(self) -> list[Watch | List]:
        return []

    def tell(self, read: Watch | List) -> None:
        read.tell()
        self.settle()

    def more(self) -> bool:
        """Something that would happen by itself does. False: there is nothing."""
        return False

    def lose_call(self, call: Call) -> None:
        """It, or its answer. A launch of which nobody hears is none."""
        if call.kind != "launch" or not call.arrived:
            self.answer(call, (UNANSWERED if call.arrived else UNSENT)[call.kind])

    # What sidecars do.

    def speak(self, sidecar: Sidecar, event: str, *, to: list[Gateway] | None = None) -> None:
        state = {"event": event, **sidecar.state()}
        for gateway in self.gateways if to is None else to:
            self.words.append(Word(gateway, sidecar.instance_id, state))

    def get_ready(self, sidecar: Sidecar) -> None:
        sidecar.phase = "warm"
        self.speak(sidecar, "ready")

    def die(self, sidecar: Sidecar, *, word: str | None = None) -> None:
        """With a last word, or without: then the backends find out."""
        sidecar.phase = "ended"
        sidecar.verdict = word or "node_lost"
        if word is not None:
            self.speak(sidecar, "ended")
        self.has_ended(sidecar, in_order=word is not None)

    def arrive(self, call: Call) -> None:
        """It takes effect; its answer is still to come."""
        call.arrived = True
        if call.kind == "launch":
            self.sidecars[call.instance_id] = Sidecar(call.instance_id, f"unix:/{call.instance_id}")
            return
        sidecar = self.sidecars[call.instance_id]
        if call.kind == "restore":
            sidecar.restored, call.result = True, "restored"
            self.speak(sidecar, "claimed")
            return
        call.result = getattr(self, f"_{call.kind}")(sidecar, call.body)

    def answer(self, call: Call, result: Any) -> None:
        self.calls.remove(call)
        if not call.answer.done():
            call.answer.set_result(result)
        self.settle()

    def give_answer(self, call: Call) -> None:
        """As it came to its end."""
        self.answer(call, "launched" if call.kind == "launch" else call.result)

    def hear(self, word: Word) -> None:
        if word.gateway.alive:
            word.gateway.receive(word)

    def see(self, gateway: Gateway, instance_id: str) -> None:
        if gateway.alive:
            gateway.lose(instance_id)

    def quiet(self, until: Callable[[], bool] = lambda: False) -> None:
        """All that is under way arrives, up to this moment."""
        for _ in range(2000):
            if until():
                return
            for sidecar in [one for one in self.sidecars.values() if one.phase == "starting"]:
                self.get_ready(sidecar)
            if self.losses:
                self.see(*self.losses.pop(0))
            elif self.words:
                self.hear(self.words.pop(0))
            elif self.calls:
                call = self.calls[0]
                if not call.arrived:
                    self.arrive(call)
                self.give_answer(call)
            elif not self.more():
                return
        raise AssertionError("messages without end")

    def _claim(self, sidecar: Sidecar, body: dict[str, Any]) -> ClaimAnswer:
        if sidecar.phase == "ended":
            return ClaimAnswer("gone", {})
        if body["generation"] != sidecar.generation:
            return ClaimAnswer("stale", {})
        if sidecar.phase == "starting":
            return ClaimAnswer("gone", {})
        if sidecar.claim is not None and sidecar.claim != body:
            return ClaimAnswer("taken", {})
        if sidecar.bound_to not in (None, body["tenant"]):
            return ClaimAnswer("bound", {}, binding=Binding(sidecar.bound_to, sidecar.uses))
        if sidecar.claim is None:
            self.numbers += 1
            sidecar.bound_to = body["tenant"]
            sidecar.uses += 1
            sidecar.claim, sidecar.phase, sidecar.claimed_at = body, "claimed", float(self.numbers)
            sidecar.used = False
            self.speak(sidecar, "claimed")
        return ClaimAnswer("claimed", sidecar.state())

    def _end(self, sidecar: Sidecar, body: dict[str, Any]) -> str:
        if sidecar.phase == "ended":
            return "ended"
        owner = sidecar.owner
        if owner is not None and (body.get("only_unclaimed") or body.get("only_of", owner) != owner):
            return "owned"
        if owner is not None and body.get("only_unused") and sidecar.used:
            return "owned"
        self.check_unwanted(sidecar)
        sidecar.phase, sidecar.verdict = "ended", body["verdict"]
        self.speak(sidecar, "ended")
        self.has_ended(sidecar, in_order=True)
        return "ended"

    def has_ended(self, sidecar: Sidecar, *, in_order: bool) -> None:
        """The backends find out. `in_order`: it has said so itself."""
        self.losses += [(gateway, sidecar.instance_id) for gateway in self.gateways]

    def unwanted(self, sidecar: Sidecar, state: dict[str, Any], verdict: str | None) -> None:
        """A gateway has answered its word by 410."""

    def _reset(self, sidecar: Sidecar, body: dict[str, Any]) -> bool:
        if sidecar.phase != "claimed" or body["generation"] != sidecar.generation:
            return False
        self.check_unwanted(sidecar)
        sidecar.generation += 1
        sidecar.claim, sidecar.claimed_at, sidecar.phase = None, None, "warm"
        sidecar.restored = False
        self.speak(sidecar, "ready")
        return True

    def reset(self, instance_id: str) -> bool:
        """By somebody who is no gateway of this world."""
        sidecar = self.sidecars[instance_id]
        return bool(self._reset(sidecar, {"generation": sidecar.generation}))

    def check_unwanted(self, sidecar: Sidecar) -> None:
        """Nobody who runs the sandbox there, and has not been told to end it, loses it by this."""
        owner = sidecar.owner
        if owner is None or owner in self.deleted:
            return
        for gateway in self.gateways:
            sandbox = gateway.directory.get(owner)
            runs = sandbox is not None and (sandbox.status, sandbox.instance_id) == (
                "RUNNING",
                sidecar.instance_id,
            )
            assert not (runs and owner in gateway.made), (
                f"a sandbox in use is collected: {owner} in {sidecar.instance_id}"
            )
