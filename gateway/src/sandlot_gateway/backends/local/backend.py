"""The local backend: builds its parts and delegates the gateway's calls to them."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Collection, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sandlot_contract.ids import InstanceId
from sandlot_contract.template import Template

from ...core.backend import Events, StillPreparing
from ...core.claim_images import ClaimImage
from ...core.gateways import OnlyGateway
from ...core.instances import ImageCheck, Instance, Laid, PoolSpec, PoolStatus, by_size
from ...core.owners import Claim, PendingCreate
from ...core.runs import RunStore
from ...core.slot import Loss
from ...core.warmups import Warmups
from ...data.pool import HttpPool
from ...tokens import Tokens
from ...usage.files import FilesOnly
from .background import Background
from .cgroups import Cgroups, NoCgroups, find_cgroups
from .entries import Entry
from .gpus import Gpus
from .hidden import Hidden
from .images import ImageStore
from .keeper import PoolKeeper
from .launcher import LaunchSettings, claim_image
from .layout import Layout, default_cache_dir
from .lock import StateLock
from .machine import cores
from .planner import Planner, PlanSettings
from .preflight import check_namespaces
from .remover import Remover
from .resetter import Resetter
from .runs import LocalRuns
from .secrets import secrets_in
from .settings import LocalSettings
from .starter import Starter, check_runtime_class
from .stats import Stats
from .takeover import Takeover
from .upkeep import Upkeep
from .warmups import LocalWarmups

log = logging.getLogger(__name__)


class LocalBackend(OnlyGateway):
    """The sandboxes of this machine. Holds the state directory's lock from `acquire` (or `start`) until `stop`."""

    name = "local"
    lays_images = True
    gpus_keep_image = False
    pools_without_image = False

    def __init__(
        self,
        *,
        state_dir: Path,
        tokens: Tokens,
        pool: HttpPool,
        cache_dir: Path | None = None,
        secret_paths: Sequence[Path] = (),
        settings: LocalSettings | None = None,
    ) -> None:
        """`secret_paths`: files outside of the state directory that no sandbox of the host's root may read."""
        self._settings = settings = settings or LocalSettings()
        self._layout = layout = Layout(state_dir.absolute(), cache_dir or default_cache_dir())
        self._lock = StateLock(layout.lock)
        self._images = ImageStore(layout.images)
        self._warmups = LocalWarmups(layout.warmups, prepare=self._warm)
        self.warmups: Warmups = self._warmups
        self.runs: RunStore = LocalRuns(layout.runs)
        self.secrets = secrets_in(settings.secrets_dir)
        self.usage = FilesOnly(state_dir.absolute() / "usage" / "days")
        self._cgroups: Cgroups = NoCgroups(["not started"])
        self._entries: dict[InstanceId, Entry] = {}
        self._background = Background()
        self._planner = Planner(PlanSettings(max_starting=settings.max_starting or max(2, cores())))
        self._keeper = PoolKeeper(
            planner=self._planner, path=layout.pools, start=self._launch_for_pool, destroy=self.destroy
        )
        self._remover = Remover(
            self._entries,
            background=self._background,
            keeper=self._keeper,
            cgroups=lambda: self._cgroups,
            pool=pool,
            end_grace=settings.end_grace,
        )
        self._starter = Starter(
            self._entries,
            background=self._background,
            planner=self._planner,
            remover=self._remover,
            images=self._images,
            cgroups=lambda: self._cgroups,
            layout=layout,
            hidden=Hidden(own=(layout.state_dir, layout.images, *secret_paths)),
            gpus=Gpus(self._entries, left=self._remover.gpus_left, root=settings.gpu_root),
            tokens=tokens,
            settings=LaunchSettings.of(layout, heartbeat=settings.heartbeat),
            max_instances=settings.max_instances,
        )
        self._resetter = Resetter(
            self._entries,
            background=self._background,
            keeper=self._keeper,
            pool=pool,
            is_ending=self._remover.is_ending,
        )
        self._takeover = Takeover(
            self._entries,
            background=self._background,
            planner=self._planner,
            remover=self._remover,
            layout=layout,
            tokens=tokens,
            pool=pool,
            patience=settings.patience,
        )
        self._upkeep = Upkeep(
            self._entries,
            background=self._background,
            remover=self._remover,
            layout=layout,
            every=settings.upkeep,
            start_timeout=settings.start_timeout,
        )
        self._stats = Stats(
            self._entries, cgroups=lambda: self._cgroups, max_instances=settings.max_instances
        )

    @property
    def shares_copies(self) -> bool:
        if os.geteuid() != 0:  # a user namespace mounts nothing of another one
            return False
        return all(entry.mounts_copies for entry in self._entries.values())

    @property
    def notes(self) -> list[str]:
        """Return what this machine does not support, as texts for the operator."""
        return list(self._cgroups.notes)

    def acquire(self) -> None:
        """Create the directories and take the lock. Raises BackendError, InUse with the other gateway's pid."""
        self._layout.make()
        self._lock.acquire()

    async def start(self, events: Events) -> None:
        self._remover.listen(events)
        self.acquire()
        await self._background.in_thread(check_namespaces)
        self._cgroups = await self._background.in_thread(find_cgroups)
        for note in self._cgroups.notes:
            log.warning("%s", note)
        await self._background.in_thread(self._images.open)
        await self._takeover.run(events)
        self._keeper.open(events)
        self._warmups.open()
        self._background.spawn(self._upkeep.run(), name="upkeep of instances")

    async def stop(self, *, timeout: float) -> None:
        self._background.closing = True
        await self._keeper.close()
        await self._warmups.close()
        await self._background.cancel_tasks()
        most = timeout * 0.8  # the rest is for what threads have begun
        await asyncio.gather(self._images.close(timeout=most), self._remover.finish(timeout=most))
        self._remover.log_left()
        ended = await self._background.close(timeout=timeout - most)
        self._remover.let_go()
        self._cgroups.close()
        # Else the next gateway would meet a call of ours in its directories; the kernel releases the lock.
        if ended:
            self._lock.release()

    async def destroy_all(self, *, timeout: float) -> None:
        await self._keeper.close()
        self._keeper.forget_all()
        await self._warmups.close()
        self._warmups.forget_all()
        await self._remover.destroy_all(self._layout.instance_dirs(), timeout=timeout)

    # From a start to the end.

    async def launch(
        self, template: Template, *, pool: str | None = None, wanted: PendingCreate | None = None
    ) -> Instance:
        return await self._starter.launch(template, pool=pool)

    async def check_image(self, image: str) -> ImageCheck:
        await self._images.prepare(image)
        return ImageCheck("on this machine")

    def image_ahead(self, image: str) -> Coroutine[Any, Any, object]:
        return self._images.prepare(image)

    async def claim_image(
        self, image: str, *, tenant: str, instance: Instance, with_config: bool = False
    ) -> ClaimImage:
        try:
            async with asyncio.timeout(self._settings.image_hold):
                return claim_image(await self._images.prepare(image))
        except TimeoutError:
            raise StillPreparing(partial(self._images.prepare, image)) from None

    def image_progress(self, image: str, *, tenant: str) -> str | None:
        return self._images.progress(image)

    def image_laid(self, instance: Instance, *, before: Laid | None) -> None:
        """Do nothing: the store keeps all images."""

    def image_unlaid(self, instance: Instance, image_id: str) -> None:
        """Do nothing: the store keeps all images."""

    def nodes_with(self, image: str) -> Collection[str]:
        """Return none: this machine is the only node."""
        return ()

    async def _warm(self, image: str) -> int:
        return (await self._images.prepare(image)).bytes

    async def _launch_for_pool(self, spec: PoolSpec) -> Instance:
        return await self.launch(spec.template, pool=spec.name)

    def ready(self, instance_id: InstanceId) -> None:
        self._planner.ready(instance_id)
        self._keeper.wake()

    async def recycle(
        self, instance: Instance, *, generation: int, tenant: str, pools: Collection[str]
    ) -> bool:
        return await self._resetter.recycle(instance, generation=generation, tenant=tenant, pools=pools)

    async def destroy(self, instance_id: InstanceId, *, given_back: bool = False) -> None:
        await self._remover.destroy(instance_id)

    # Pools.

    def pools(self) -> list[PoolStatus]:
        return self._keeper.statuses()

    def pool(self, name: str) -> PoolSpec | None:
        return self._planner.spec(name)

    async def set_pool(self, spec: PoolSpec) -> None:
        old = self._planner.spec(spec.name)
        # A pool that asks for no more can be changed once the driver is gone.
        if old is None or old.template != spec.template or old.size < spec.size:
            check_runtime_class(spec.template)
            await self._starter.gpus_for(spec.template)
        await self._keeper.set(spec)

    async def delete_pool(self, name: str) -> bool:
        return await self._keeper.delete(name)

    def nudge(self, pool: str) -> None:
        self._planner.claimed(pool, now=asyncio.get_running_loop().time())
        self._keeper.wake()

    def kind(self, template: Template) -> str:
        return by_size(template)

    def begun(self, instance_id: InstanceId) -> float | None:
        entry = self._entries.get(instance_id)
        return entry.began if entry is not None else 0.0

    def unplaced(self, template: Template, *, tenant: str, started: InstanceId | None) -> str | None:
        """Return None: `launch` refuses what this machine has no room for."""

    def instance(self, instance_id: InstanceId) -> Instance | None:
        entry = self._entries.get(instance_id)
        return None if entry is None or entry.leaving is not None else entry.instance

    def hear(self, instance_id: InstanceId, state: dict[str, Any]) -> Instance | None:
        return self.instance(instance_id)

    def claimed(self, instance: Instance, claim: Claim, *, ours: bool) -> None:
        """Do nothing: the sidecar keeps the only record."""

    def ended(self, instance_id: InstanceId, end: Loss, *, claim: Claim | None, heard: bool) -> None:
        """Do nothing: `destroy` follows."""

    def stats(self) -> dict[str, Any]:
        """Return the machine's figures and each instance's usage, at most 1 s old."""
        return self._stats.read()
