"""A backend for tests: its sidecars are servers in this process and outlive the gateway, as real ones do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandlot_contract.template import Template
from sandlot_gateway.backends.local.runs import LocalRuns
from sandlot_gateway.backends.local.warmups import LocalWarmups
from sandlot_gateway.core.backend import BackendError, Events, Unavailable
from sandlot_gateway.core.instances import ImageCheck, Instance, PoolSpec, PoolStatus, by_template
from sandlot_gateway.core.owners import Claim, PendingCreate
from sandlot_gateway.core.runs import RunStore
from sandlot_gateway.core.secret_refs import SecretSource
from sandlot_gateway.core.slot import Loss
from sandlot_gateway.tokens import Tokens
from sandlot_gateway.usage.files import FilesOnly

from tests.gateway.sidecars import StubSidecar, new_instance_id


@dataclass
class Machine:
    """What stays when a gateway goes."""

    directory: Path
    sidecars: dict[str, StubSidecar] = field(default_factory=dict)
    instances: dict[str, Instance] = field(default_factory=dict)
    pools: dict[str, PoolSpec] = field(default_factory=dict)
    launched: int = 0
    launched_for: list[PendingCreate | None] = field(
        default_factory=list
    )  # whom each launch was said to be for
    fail_launch: list[Exception] = field(default_factory=list)
    hold_ready: asyncio.Event | None = None  # launched instances get ready when it is set
    begun: float | None = 0.0  # of every start; None: it waits for its turn
    looked: int = 0  # how often somebody asked for that
    hold_pools: asyncio.Event | None = None  # pools are made and changed when it is set
    asked_pools: list[str] = field(default_factory=list)  # the names of those that were to be
    hold_start: bool = False  # a start of the backend never ends
    hold_stop: bool = False  # its stop takes all the time that it gets
    stops: list[float] = field(default_factory=list)  # of its stops, how many seconds they got
    secrets: SecretSource | None = None  # what creates may name by reference
    capacity: int = 50  # instances; no pool gets more, whatever it asks for
    room: int | None = None  # instances of creates and pools together

    async def close(self) -> None:
        for sidecar in self.sidecars.values():
            await sidecar.close()

    def of_sandbox(self, sandbox_id: str) -> StubSidecar:
        return next(
            sidecar
            for sidecar in self.sidecars.values()
            if sidecar.claim is not None and sidecar.claim["sandbox_id"] == sandbox_id
        )

    def claimed(self) -> list[StubSidecar]:
        return [sidecar for sidecar in self.sidecars.values() if sidecar.phase == "claimed"]


class StubBackend:
    """Implements core.backend.Backend over a Machine."""

    name = "stub"
    single_gateway = True
    delete_wait = 0.0
    lays_images = pools_without_image = gpus_keep_image = shares_copies = False
    shared_notes = None
    others = None
    warmups: LocalWarmups
    runs: RunStore
    usage: FilesOnly

    def __init__(self, machine: Machine, *, tokens: Tokens, webhook: str) -> None:
        self.machine = machine
        self.secrets = machine.secrets
        self.tokens = tokens
        self.webhook = webhook
        self.events: Events | None = None
        self.destroyed: list[str] = []
        self.doubted: set[str] = set()  # sandboxes that another gateway may have
        self.claims: list[tuple[str, Claim]] = []
        self.ends: list[tuple[str, str]] = []
        self.pending_creates: list[PendingCreate] = []
        self.starting: dict[str, set[str]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self.usage = FilesOnly(machine.directory / "usage-days")
        self.runs = LocalRuns(machine.directory / "runs.json")
        self.warmups = LocalWarmups(machine.directory / "warmups.json", prepare=self._warm)

    async def start(self, events: Events) -> None:
        self.events = events
        if self.machine.hold_start:
            await asyncio.Event().wait()
        for instance_id, sidecar in list(self.machine.sidecars.items()):
            sidecar.webhook = self.webhook
            events.instance_found(self.machine.instances[instance_id], sidecar.state())
        for name in self.machine.pools:
            self._fill(name)
        self.warmups.open()

    async def stop(self, *, timeout: float) -> None:
        self.machine.stops.append(timeout)
        if self.machine.hold_stop:
            await asyncio.sleep(timeout)
        await self.warmups.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def launch(
        self, template: Template, *, pool: str | None = None, wanted: PendingCreate | None = None
    ) -> Instance:
        self.machine.launched += 1
        self.machine.launched_for.append(wanted)
        if self.machine.fail_launch:
            raise self.machine.fail_launch.pop(0)
        if self.machine.room is not None and len(self.machine.instances) >= self.machine.room:
            raise Unavailable("full", retry_after=0.05)
        instance_id = new_instance_id()
        token = self.tokens.instance(instance_id)
        sidecar = StubSidecar(
            instance_id=instance_id, token=token, directory=self.machine.directory, webhook=self.webhook
        )
        await sidecar.start()
        instance = Instance(instance_id, template, sidecar.address, token, pool, started_at=time.time())
        self.machine.sidecars[instance_id] = sidecar
        self.machine.instances[instance_id] = instance
        self._own(self._get_ready(sidecar))
        return instance

    def kind(self, template: Template) -> str:
        return by_template(template)

    def begun(self, instance_id: str) -> float | None:
        self.machine.looked += 1
        return self.machine.begun

    def unplaced(self, template: Template, *, tenant: str, started: str | None) -> str | None:
        return None

    def nodes_with(self, image: str) -> tuple[str, ...]:
        return ()

    async def check_image(self, image: str) -> ImageCheck:
        if image.startswith("bad"):
            raise BackendError(f"no {image}", error_type="IMAGE_PULL_FAILED", field="docker_image")
        return ImageCheck("there")

    async def _warm(self, image: str) -> int:
        await self.check_image(image)
        return 1000

    async def _get_ready(self, sidecar: StubSidecar) -> None:
        if self.machine.hold_ready is not None:
            await self.machine.hold_ready.wait()
        await sidecar.push("ready")

    def ready(self, instance_id: str) -> None:
        for starting in self.starting.values():
            starting.discard(instance_id)

    async def recycle(
        self, instance: Instance, *, generation: int, tenant: str, pools: Collection[str]
    ) -> bool:
        sidecar = self.machine.sidecars.get(instance.id)
        if sidecar is None or sidecar.phase != "claimed":
            return False
        status, told = sidecar._reset(keep=False)
        return status == 200 and told["equal"]

    async def ends_written(self, sandbox_ids: Iterable[str], *, timeout: float) -> None:
        return

    async def destroy(self, instance_id: str, *, given_back: bool = False) -> None:
        self.destroyed.append(instance_id)
        self.machine.instances.pop(instance_id, None)
        sidecar = self.machine.sidecars.pop(instance_id, None)
        if sidecar is not None:
            sidecar.phase = "ended"
            await sidecar.close()

    def lose(self, instance_id: str, *, verdict: str = "sidecar_lost", message: str = "killed") -> None:
        """The sidecar's process dies."""
        assert self.events is not None
        self.events.instance_lost(instance_id, Loss(verdict, message))

    def instance(self, instance_id: str) -> Instance | None:
        return self.machine.instances.get(instance_id)

    def hear(self, instance_id: str, state: dict[str, Any]) -> Instance | None:
        return self.instance(instance_id)

    def claimed(self, instance: Instance, claim: Claim, *, ours: bool) -> None:
        self.claims.append((instance.id, claim))

    async def share_pending_create(self, pending_create: PendingCreate) -> None:
        self.pending_creates.append(pending_create)

    def pending_create_ended(self, sandbox_id: str, *, verdict: str, message: str | None) -> None:
        self.ends.append((sandbox_id, verdict))

    def ended(self, instance_id: str, end: Loss, *, claim: Claim | None, heard: bool) -> None:
        self.ends.append((instance_id, end.verdict))

    def sought(self, sandbox_id: str) -> None:
        return

    def may_have(self, sandbox_id: str) -> bool:
        return sandbox_id in self.doubted

    def missed(self, new: bool) -> None:
        return

    def told(self, news: bytes) -> bool:
        return False

    def pools(self) -> list[PoolStatus]:
        return [
            PoolStatus(spec, starting=len(self.starting.get(name, ())))
            for name, spec in self.machine.pools.items()
        ]

    def pool(self, name: str) -> PoolSpec | None:
        return self.machine.pools.get(name)

    async def set_pool(self, spec: PoolSpec) -> None:
        if spec.template.image == "broken":
            raise BackendError("no such image", error_type="IMAGE_PULL_FAILED", field="image")
        self.machine.asked_pools.append(spec.name)
        if self.machine.hold_pools is not None:
            await self.machine.hold_pools.wait()
        self.machine.pools[spec.name] = spec
        self._fill(spec.name)

    async def delete_pool(self, name: str) -> bool:
        assert self.events is not None
        if self.machine.pools.pop(name, None) is None:
            return False
        while (instance_id := self.events.give_up(name)) is not None:
            await self.destroy(instance_id)
        return True

    def nudge(self, pool: str) -> None:
        self._fill(pool)

    def _fill(self, name: str) -> None:
        spec = self.machine.pools.get(name)
        if spec is None or self.events is None:
            return
        starting = self.starting.setdefault(name, set())
        wanted = min(spec.size, self.machine.capacity - len(self.machine.instances))
        for _ in range(wanted - len(starting) - self.events.warm_count(name)):
            placeholder = new_instance_id()
            starting.add(placeholder)
            self._own(self._launch_for(spec, placeholder))

    async def _launch_for(self, spec: PoolSpec, placeholder: str) -> None:
        starting = self.starting[spec.name]
        try:
            instance = await self.launch(spec.template, pool=spec.name)
            starting.add(instance.id)
        finally:
            starting.discard(placeholder)

    def stats(self) -> dict[str, Any]:
        usage = {instance_id: {"memory": 1, "cpu": 0.5} for instance_id in self.machine.instances}
        return {"cores": 2, "instances": len(self.machine.instances), "usage": usage}

    async def destroy_all(self, *, timeout: float) -> None:
        for instance_id in list(self.machine.instances):
            await self.destroy(instance_id)

    def _own(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
