"""A gateway in a world of lives: its own parts above the wire, over calls that arrive when the world says so."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandlot_contract.template import Template
from sandlot_gateway.checkpoints.errors import RestoreFailed
from sandlot_gateway.core.backend import BackendError, Unavailable
from sandlot_gateway.core.instances import ImageCheck, Instance, PoolSpec, PoolStatus, by_template
from sandlot_gateway.core.owners import Claim, PendingCreate
from sandlot_gateway.core.slot import Loss
from sandlot_gateway.core.slots import Slots
from sandlot_gateway.core.supply_events import CannotStart, QueueFull
from sandlot_gateway.core.supply_settings import SupplySettings
from sandlot_gateway.directory import Directory
from sandlot_gateway.engine.lifecycle import Lifecycle
from sandlot_gateway.engine.pending import PendingStore
from sandlot_gateway.engine.supply import Supply
from sandlot_gateway.keys import Tenant
from sandlot_gateway.sandboxes import Sandbox, Spec
from sandlot_gateway.sealing import Seal
from sandlot_gateway.tokens import Tokens
from sandlot_gateway.webhooks import Webhooks

from tests.gateway.lives_messages import REUSING, TEMPLATE, TENANT, Call, Word
from tests.gateway.lives_wire import Wire

if TYPE_CHECKING:
    from tests.gateway.lives import World

TOKENS = Tokens(b"k" * 32)


class Below:
    """A gateway's backend, over the world. Pods are everybody's: one that cannot be asked is left to whoever has it."""

    name = "world"
    single_gateway = lays_images = pools_without_image = gpus_keep_image = shares_copies = False
    delete_wait = 2.0
    shared_notes = others = warmups = secrets = None

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.instances: dict[str, Instance] = {}
        self.gone: set[str] = set()

    async def launch(
        self, template: Template, *, pool: str | None = None, wanted: PendingCreate | None = None
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
        if instance_id not in self.instances:
            token, address = TOKENS.instance(instance_id), f"unix:/{instance_id}"
            made = Instance(instance_id, TEMPLATE, address, token, started_at=time.time())
            self.instances[instance_id] = made
        return self.instances[instance_id]

    def kind(self, template: Template) -> str:
        return by_template(template)

    def begun(self, instance_id: str) -> float | None:
        return 0.0

    def nodes_with(self, image: str) -> tuple[str, ...]:
        return ()

    async def check_image(self, image: str) -> ImageCheck:
        return ImageCheck("there")

    def ready(self, instance_id: str) -> None:
        return

    async def recycle(
        self, instance: Instance, *, generation: int, tenant: str, pools: Collection[str]
    ) -> bool:
        assert self._gateway.world.sidecars[instance.id].bound_to == tenant
        answer = await self._gateway.call("reset", instance.id, {"generation": generation})
        return answer is True

    async def ends_written(self, sandbox_ids: Iterable[str], *, timeout: float) -> None:
        return

    async def destroy(self, instance_id: str, *, given_back: bool = False) -> None:
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

    async def share_pending_create(self, pending_create: PendingCreate) -> None:
        return

    def pending_create_ended(self, sandbox_id: str, *, verdict: str, message: str | None) -> None:
        return

    def ended(self, instance_id: str, end: Loss, *, claim: Claim | None, heard: bool) -> None:
        return

    def told(self, news: bytes) -> bool:
        return False

    def sought(self, sandbox_id: str) -> None:
        return

    def pools(self) -> list[PoolStatus]:
        return [PoolStatus(REUSING, starting=0)] if self._gateway.world.recycles else []

    def pool(self, name: str) -> PoolSpec | None:
        return None

    def nudge(self, pool: str) -> None:
        return


class Gateway:
    """The gateway's own parts above the wire, of one process."""

    image = "host"

    def __init__(self, world: World, directory: Path) -> None:
        self.world = world
        self.tokens = TOKENS
        self.alive = True
        self.made: dict[str, Sandbox] = {}  # by this gateway's own creates
        self.counts: Counter[str] = Counter()
        self.disk = directory
        world.loop.run_until_complete(self._build(directory))

    def machine(self) -> tuple[Any, Any]:
        """Its backend and its way to sidecars."""
        self.below = Below(self)
        return self.below, Wire(self)

    async def begin(self) -> None:
        """With what is there."""

    def clock(self) -> float:
        return time.time()

    async def _build(self, directory: Path) -> None:
        backend, wire = self.machine()
        self.backend = backend
        observer: Any = self
        self.directory = Directory()
        settings = SupplySettings(max_starts=3, max_waiting=8)
        self.supply = Supply(backend=backend, slots=Slots(rank=self._rank), settings=settings)
        self.lifecycle = Lifecycle(
            directory=self.directory,
            supply=self.supply,
            sidecars=wire,
            backend=backend,
            tokens=self.tokens,
            pending=PendingStore(directory, seal=Seal(TOKENS.pending_keys)),
            observer=observer,
            restore=self._restore,
            clock=self.clock,
        )
        self.webhooks = Webhooks(
            tokens=self.tokens,
            backend=backend,
            supply=self.supply,
            directory=self.directory,
            ends=self.lifecycle.ends,
            adoption=self.lifecycle.adoption,
            counted=self._count,
        )
        await self.begin()

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
        call = Call(self, kind, instance_id, body, answer)
        if self.alive:
            self.world.calls.append(call)
        try:
            return await answer
        finally:
            if call in self.world.calls and call.kind != "launch":
                self.world.calls.remove(call)  # whoever waited has given up

    # What a test does.

    def create(
        self, *, checkpoint: str | None = None, key: str | None = None, tenant: Tenant = TENANT
    ) -> Sandbox | None:
        """None: its line is full."""
        spec = Spec(name="x", image=self.image, checkpoint=checkpoint, key=key)

        async def begin() -> Sandbox:
            return self.lifecycle.create(spec, secrets={}, tenant=tenant)

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
        self._run(self.lifecycle.adoption.resume)

    def receive(self, word: Word) -> None:
        body = json.dumps(word.state).encode()
        key = TOKENS.instance(word.instance_id).encode()
        signature = "sha256=" + hmac.new(key, body, hashlib.sha256).hexdigest()

        def receive() -> None:
            answer = self.webhooks.receive(word.instance_id, signature, body)
            if answer.status == 410 and word.state["event"] != "ended":
                self.world.unwanted(self.world.sidecars[word.instance_id], word.state, answer.verdict)

        self._run(receive)

    def lose(self, instance_id: str) -> None:
        """Its backend has found that the pod is gone."""

        def tell() -> None:
            self.below.gone.add(instance_id)
            self.below.instances.pop(instance_id, None)
            # Of a pod that is gone nobody can tell what its sidecar was told.
            self.lifecycle.ends.gone(instance_id, Loss("sandbox_lost", "gone"))

        self._run(tell)

    def delete(self, sandbox: Sandbox) -> None:
        self.world.deleted[sandbox.id] = self
        self.world.answered.add(sandbox.id)
        self._run(lambda: self.lifecycle.ends.delete(sandbox))

    def _run(self, action: Callable[[], Any]) -> None:
        async def act() -> None:
            action()

        self.world.loop.run_until_complete(act())
        self.world.settle()
