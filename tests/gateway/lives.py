"""A world of gateways and sidecars without a machine below: every call and word waits until a test lets it arrive."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandlot_contract.template import Template
from sandlot_gateway.checkpoints.service import RestoreFailed
from sandlot_gateway.core.backend import BackendError, Unavailable
from sandlot_gateway.core.instances import ImageCheck, Instance, PoolSpec, PoolStatus
from sandlot_gateway.core.owners import Claim, Promise
from sandlot_gateway.core.slots import Slots
from sandlot_gateway.core.supply import SupplySettings
from sandlot_gateway.core.supply_events import CannotStart, QueueFull
from sandlot_gateway.directory import Directory
from sandlot_gateway.engine.lifecycle import Lifecycle
from sandlot_gateway.engine.pending import PendingStore
from sandlot_gateway.engine.supply import Supply
from sandlot_gateway.keys import Tenant
from sandlot_gateway.sandboxes import Sandbox, Spec
from sandlot_gateway.sealing import Seal
from sandlot_gateway.sidecars import ClaimAnswer
from sandlot_gateway.tokens import Tokens
from sandlot_gateway.webhooks import Webhooks

TOKENS = Tokens(b"k" * 32)
TEMPLATE = Template("host")
TENANT = Tenant("t")


class VirtualTime(asyncio.SelectorEventLoop):
    """Its clock moves when it is told to, so that an hour of timers takes no time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def time(self) -> float:
        return self.now


@dataclass
class Sidecar:
    """What one really is, whoever knows of it."""

    instance_id: str
    address: str
    generation: int = 1
    phase: str = "starting"
    claim: dict[str, Any] | None = None
    claimed_at: float | None = None
    verdict: str | None = None

    @property
    def owner(self) -> str | None:
        return self.claim["sandbox_id"] if self.claim is not None and self.phase == "claimed" else None

    def state(self) -> dict[str, Any]:
        claim = self.claim or {}
        return {
            "instance_id": self.instance_id,
            "generation": self.generation,
            "phase": self.phase,
            "sandbox_id": claim.get("sandbox_id"),
            "claimed_at": self.claimed_at,
            "meta": claim.get("meta"),
            "verdict": self.verdict,
        }


@dataclass(eq=False)
class Call:
    """One request of a gateway that has been sent, and is answered when the world says so."""

    gateway: Gateway
    kind: str
    instance_id: str
    body: dict[str, Any]
    answer: asyncio.Future[Any]
    result: Any = None
    arrived: bool = False


@dataclass
class Word:
    gateway: Gateway
    instance_id: str
    state: dict[str, Any]


class World:
    """`calls`, `words` and `losses` are under way: a test lets them arrive, in any order, or not at all."""

    def __init__(self, directory: Path, *, gateways: int, recycles: bool) -> None:
        self.recycles = recycles
        self.loop = VirtualTime()
        self.directory = directory
        self.sidecars: dict[str, Sidecar] = {}
        self.calls: list[Call] = []
        self.words: list[Word] = []
        self.losses: list[tuple[Gateway, str]] = []
        self.deleted: dict[str, Gateway] = {}  # by whom
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
        return Gateway(self, disk or self.directory / str(self.made))

    def settle(self) -> None:
        """Until every task waits for the world or for time."""

        async def turns() -> None:
            for _ in range(12):
                await asyncio.sleep(0)

        self.loop.run_until_complete(turns())

    def pass_time(self, seconds: float) -> None:
        self.loop.now += seconds
        self.settle()

    def kill(self, gateway: Gateway, *, keep_disk: bool = False) -> None:
        """It says and hears nothing more, and another takes its place.

        A delete that had not come to the sidecar by then was not answered either.
        """
        gateway.alive = False
        for sidecar in self.sidecars.values():
            if sidecar.owner is not None and self.deleted.get(sidecar.owner) is gateway:
                del self.deleted[sidecar.owner]
        self.dead.append(gateway)
        self.calls = [call for call in self.calls if call.gateway is not gateway or call.kind == "launch"]
        self.gateways[self.gateways.index(gateway)] = self.new_gateway(
            disk=gateway.disk if keep_disk else None
        )

    def close(self) -> None:
        for gateway in [*self.gateways, *self.dead]:
            gateway.alive = False
            self.loop.run_until_complete(gateway.close())
        self.loop.close()

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
        self.losses += [(gateway, sidecar.instance_id) for gateway in self.gateways]

    def arrive(self, call: Call) -> None:
        """It takes effect; its answer is still to come."""
        call.arrived = True
        if call.kind == "launch":
            self.sidecars[call.instance_id] = Sidecar(call.instance_id, f"unix:/{call.instance_id}")
            return
        if call.kind == "restore":
            return
        sidecar = self.sidecars[call.instance_id]
        call.result = getattr(self, f"_{call.kind}")(sidecar, call.body)

    def answer(self, call: Call, result: Any) -> None:
        self.calls.remove(call)
        if not call.answer.done():
            call.answer.set_result(result)
        self.settle()

    def _claim(self, sidecar: Sidecar, body: dict[str, Any]) -> ClaimAnswer:
        if sidecar.phase == "ended":
            return ClaimAnswer("gone", {})
        if body["generation"] != sidecar.generation:
            return ClaimAnswer("stale", {})
        if sidecar.phase == "starting":
            return ClaimAnswer("gone", {})
        if sidecar.claim is not None and sidecar.claim != body:
            return ClaimAnswer("taken", {})
        if sidecar.claim is None:
            self.numbers += 1
            sidecar.claim, sidecar.phase, sidecar.claimed_at = body, "claimed", float(self.numbers)
            self.speak(sidecar, "claimed")
        return ClaimAnswer("claimed", sidecar.state())

    def _end(self, sidecar: Sidecar, body: dict[str, Any]) -> str:
        if sidecar.phase == "ended":
            return "ended"
        owner = sidecar.owner
        if owner is not None and (body.get("only_unclaimed") or body.get("only_of", owner) != owner):
            return "owned"
        self.check_unwanted(sidecar)
        sidecar.phase, sidecar.verdict = "ended", body["verdict"]
        self.speak(sidecar, "ended")
        self.losses += [(gateway, sidecar.instance_id) for gateway in self.gateways]
        return "ended"

    def _reset(self, sidecar: Sidecar, body: dict[str, Any]) -> bool:
        if sidecar.phase != "claimed" or body["generation"] != sidecar.generation:
            return False
        self.check_unwanted(sidecar)
        sidecar.generation += 1
        sidecar.claim, sidecar.claimed_at, sidecar.phase = None, None, "warm"
        self.speak(sidecar, "ready")
        return True

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


class Wire:
    """A gateway's `Sidecars`, over the world."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def claim(self, instance: Instance, claim: dict[str, Any]) -> ClaimAnswer:
        answer = await self._gateway.call("claim", instance.id, claim)
        return ClaimAnswer(answer, {}) if isinstance(answer, str) else answer

    async def end(
        self, instance: Instance, *, verdict: str, message: str | None = None, only_of: str | None = None
    ) -> str:
        body = {"verdict": verdict} | ({} if only_of is None else {"only_of": only_of})
        return await self._gateway.call("end", instance.id, body)

    async def end_unclaimed(self, instance: Instance) -> str:
        return await self._gateway.call("end", instance.id, {"verdict": "deleted", "only_unclaimed": True})


class Below:
    """A gateway's backend, over the world. Pods are everybody's: one that cannot be asked is left to whoever has it."""

    name = "world"
    finds_all = False
    shared_notes = None
    others = None

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.instances: dict[str, Instance] = {}
        self.gone: set[str] = set()

    async def launch(
        self, template: Template, *, pool: str | None = None, wanted: Promise | None = None
    ) -> Instance:
        self._gateway.world.made += 1
        instance_id = f"i-{self._gateway.world.made:016x}"
        instance = self._known(instance_id)
        outcome = await self._gateway.call("launch", instance_id, {})
        if outcome != "launched":
            self.instances.pop(instance_id, None)
            if outcome == "refused":
                raise Unavailable("no room", retry_after=2.0)
            raise BackendError("it cannot start")
        return instance

    def _known(self, instance_id: str) -> Instance:
        instance = self.instances.get(instance_id)
        if instance is None:
            token = TOKENS.instance(instance_id)
            instance = Instance(instance_id, TEMPLATE, f"unix:/{instance_id}", token)
            self.instances[instance_id] = instance
        return instance

    def begun(self, instance_id: str) -> float | None:
        return 0.0

    async def check_image(self, image: str) -> ImageCheck:
        return ImageCheck("there")

    def ready(self, instance_id: str) -> None:
        return

    async def recycle(self, instance: Instance, *, generation: int) -> bool:
        if not self._gateway.world.recycles:
            return False
        answer = await self._gateway.call("reset", instance.id, {"generation": generation})
        return answer is True

    async def destroy(self, instance_id: str) -> None:
        if instance_id not in self.instances:
            return
        answer = await self._gateway.call("end", instance_id, {"verdict": "deleted", "only_unclaimed": True})
        if answer == "ended":
            self.gone.add(instance_id)
            self.instances.pop(instance_id, None)

    def instance(self, instance_id: str) -> Instance | None:
        return self.instances.get(instance_id)

    def hear(self, instance_id: str, state: dict[str, Any]) -> Instance | None:
        return None if instance_id in self.gone else self._known(instance_id)

    def claimed(self, instance: Instance, claim: Claim, *, ours: bool) -> None:
        return

    async def promise(self, promise: Promise) -> None:
        return

    def promise_ended(self, sandbox_id: str, *, verdict: str, message: str | None) -> None:
        return

    def ended(
        self, instance_id: str, *, verdict: str, message: str | None, exit_code: int | None, heard: bool
    ) -> None:
        return

    def pools(self) -> list[PoolStatus]:
        return []

    def pool(self, name: str) -> PoolSpec | None:
        return None

    def nudge(self, pool: str) -> None:
        return


class Gateway:
    """The gateway's own parts above the wire, of one process."""

    def __init__(self, world: World, directory: Path) -> None:
        self.world = world
        self.alive = True
        self.made: dict[str, Sandbox] = {}  # by this gateway's own creates
        self.counts: Counter[str] = Counter()
        self.disk = directory
        world.loop.run_until_complete(self._build(directory))

    async def _build(self, directory: Path) -> None:
        wire: Any = Wire(self)
        self.below = Below(self)
        backend: Any = self.below
        observer: Any = self
        self.directory = Directory()
        settings = SupplySettings(max_starts=3, max_waiting=8)
        self.supply = Supply(backend=backend, slots=Slots(rank=self._rank), settings=settings)
        self.lifecycle = Lifecycle(
            directory=self.directory,
            supply=self.supply,
            sidecars=wire,
            backend=backend,
            tokens=TOKENS,
            pending=PendingStore(directory, seal=Seal(TOKENS.pending_key())),
            observer=observer,
            restore=self._restore,
        )
        self.webhooks = Webhooks(
            tokens=TOKENS,
            backend=backend,
            supply=self.supply,
            directory=self.directory,
            ends=self.lifecycle.ends,
            learning=self.lifecycle.learning,
            counted=self._count,
        )

    def _rank(self, instance_id: str) -> int:
        """Each gateway has an order of its own, the same in each run."""
        return zlib.crc32(f"{self.disk.name} {instance_id}".encode())

    async def _restore(self, sandbox: Sandbox, instance: Instance) -> None:
        if await self.call("restore", instance.id, {}) != "restored":
            raise RestoreFailed("its files did not come")

    def _count(self, event: str) -> None:
        self.counts[event] += 1

    def created(self, sandbox: Sandbox, *, seconds: float) -> None:
        return

    def ended(self, sandbox: Sandbox) -> None:
        return

    async def close(self) -> None:
        await self.lifecycle.close(timeout=0.0)
        await self.supply.close()

    async def call(self, kind: str, instance_id: str, body: dict[str, Any]) -> Any:
        """Of a process that is dead nothing is sent, and nothing comes to it."""
        answer = self.world.loop.create_future()
        if self.alive:
            self.world.calls.append(Call(self, kind, instance_id, body, answer))
        return await answer

    # What a test does.

    def create(self, *, checkpoint: str | None = None) -> Sandbox | None:
        """None: its line is full."""
        spec = Spec(name="x", image="host", checkpoint=checkpoint)

        async def begin() -> Sandbox:
            return self.lifecycle.create(spec, secrets={}, tenant=TENANT)

        try:
            sandbox = self.world.loop.run_until_complete(begin())
        except (QueueFull, CannotStart):
            return None
        self.made[sandbox.id] = sandbox
        self.world.settle()
        return sandbox

    def answered(self, sandbox: Sandbox) -> None:
        """Its caller has waited long enough, and is told that it is PENDING."""
        self.world.loop.run_until_complete(self.lifecycle.wait(sandbox, timeout=0.0))

    def resume(self) -> None:
        """All that its sidecars have to say has been heard."""
        self._run(self.lifecycle.learning.resume)

    def receive(self, word: Word) -> None:
        body = json.dumps(word.state).encode()
        key = TOKENS.instance(word.instance_id).encode()
        signature = "sha256=" + hmac.new(key, body, hashlib.sha256).hexdigest()
        self._run(lambda: self.webhooks.receive(word.instance_id, signature, body))

    def lose(self, instance_id: str) -> None:
        """Its backend has found that the pod is gone."""

        def tell() -> None:
            self.below.gone.add(instance_id)
            self.below.instances.pop(instance_id, None)
            # Of a pod that is gone nobody can tell what its sidecar was told.
            self.lifecycle.ends.gone(instance_id, verdict="sandbox_lost", message="gone")

        self._run(tell)

    def delete(self, sandbox: Sandbox) -> None:
        self.world.deleted[sandbox.id] = self
        self._run(lambda: self.lifecycle.ends.delete(sandbox))

    def _run(self, action: Callable[[], Any]) -> None:
        async def act() -> None:
            action()

        self.world.loop.run_until_complete(act())
        self.world.settle()
