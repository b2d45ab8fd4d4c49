"""The local backend: starts sidecars on this machine, finds those of an earlier gateway, and cleans up after all."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from ...core.backend import BackendError, Events, Notes, OtherGateways, Unavailable
from ...core.instances import ImageCheck, Instance, PoolSpec, PoolStatus, Template
from ...core.owners import Claim, Promise
from ...data.pool import HttpPool, PoolError
from ...tokens import Tokens
from .cgroups import Cgroups, NoCgroups, find_cgroups
from .discovery import Dead, Living, examine
from .entries import Entry
from .hidden import Hidden
from .images import Image, ImageStore
from .keeper import PoolKeeper
from .launcher import LaunchSettings, bound_log, log_tail, sidecar_config, spawn, write_config
from .layout import InstanceDir, Layout, default_cache_dir
from .lock import StateLock
from .machine import cores, machine_stats
from .planner import Planner, PlanSettings
from .preflight import check_namespaces
from .processes import key_of, sidecar_configs
from .records import Record, load_record
from .remains import remove_remains

log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """Times in seconds."""

    max_instances: int = 1000
    max_starting: int | None = None  # for pools, at once; default: the number of cores, at least 2
    max_resets: int = 100  # how often an instance is used again
    heartbeat: float = 30.0
    start_timeout: float = 60.0  # an instance that is not ready by then is ended
    end_grace: float = 0.3  # for `ended` to be told, once all in the sandbox is dead; then SIGKILL
    patience: float = 5.0  # how long a sidecar found at start may take to answer
    upkeep: float = 15.0  # between two looks at logs and overdue starts


class LocalBackend:
    """One machine's sandboxes. Holds the state directory's lock from `acquire` (or `start`) until `stop`."""

    name = "local"
    finds_all = True
    shared_notes: Notes | None = None
    others: OtherGateways | None = None

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
        self._layout = Layout(state_dir.absolute(), cache_dir or default_cache_dir())
        self._tokens = tokens
        self._pool = pool
        self._settings = settings or LocalSettings()
        self._launch_settings = LaunchSettings(
            webhook=f"unix:{self._layout.gateway_socket}:/internal/sidecar",
            bytecode=self._layout.bytecode,
            heartbeat=self._settings.heartbeat,
        )
        self._hidden = Hidden(own=(self._layout.state_dir, self._layout.images, *secret_paths))
        self._lock = StateLock(self._layout.lock)
        self._images = ImageStore(self._layout.images)
        self._cgroups: Cgroups = NoCgroups(["not started"])
        self._entries: dict[str, Entry] = {}
        self._events: Events | None = None
        self._threads = ThreadPoolExecutor(8, thread_name_prefix="sandlot-local")
        self._tasks: set[asyncio.Task[Any]] = set()
        max_starting = self._settings.max_starting or max(2, cores())
        self._planner = Planner(PlanSettings(max_starting=max_starting))
        self._keeper = PoolKeeper(
            planner=self._planner, path=self._layout.pools, start=self._launch_for_pool, destroy=self.destroy
        )
        self._closing = False
        self._stats: tuple[float, dict[str, Any]] | None = None

    @property
    def notes(self) -> list[str]:
        """What this machine cannot do, in words for the operator."""
        return list(self._cgroups.notes)

    def acquire(self) -> None:
        """Makes the directories and takes the lock. Raises BackendError, InUse with the other gateway's pid."""
        self._layout.make()
        self._lock.acquire()

    async def start(self, events: Events) -> None:
        self._events = events
        self.acquire()
        await self._in_thread(check_namespaces)
        self._cgroups = await self._in_thread(find_cgroups)
        for note in self._cgroups.notes:
            log.warning("%s", note)
        await self._in_thread(self._images.open)
        await self._find(events)
        self._keeper.open(events)
        self._own(self._upkeep(), name="upkeep of instances")

    async def stop(self) -> None:
        self._closing = True
        await self._keeper.close()
        await self._images.close()
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            # A taking away under way is finished, it takes a moment; everything else ends here.
            if not task.get_name().startswith("destroy"):
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for entry in self._entries.values():
            entry.unwatch()
        self._entries.clear()
        await asyncio.to_thread(self._threads.shutdown)
        self._cgroups.close()
        self._lock.release()

    # Starts.

    async def launch(
        self, template: Template, *, pool: str | None = None, wanted: Promise | None = None
    ) -> Instance:
        image = await self._images.prepare(template.image)
        if self._closing:
            raise Unavailable("the gateway is stopping")
        if template.gpu_count or template.gpu_type:
            raise BackendError("the local backend has no GPUs", error_type="UNSUPPORTED", field="gpu_count")
        if template.runtime_class not in (None, "", "namespaces"):
            raise BackendError(
                f"the local backend has no runtime class {template.runtime_class!r}",
                error_type="UNSUPPORTED",
                field="runtime_class",
            )
        if len(self._entries) >= self._settings.max_instances:
            raise Unavailable(f"{len(self._entries)} sandboxes run on this machine, which is its limit")
        entry = self._enter(template, pool)
        try:
            # Shielded: a caller that goes away in the middle must not leave a process that nobody watches.
            await asyncio.shield(self._own(self._spawn(entry, image), name=f"spawn {entry.instance.id}"))
        except asyncio.CancelledError:
            self._own(self.destroy(entry.instance.id), name=f"destroy {entry.instance.id}")
            raise
        except BackendError:
            await self.destroy(entry.instance.id)
            raise
        return entry.instance

    async def check_image(self, image: str) -> ImageCheck:
        await self._images.prepare(image)
        return ImageCheck("on this machine")

    def _enter(self, template: Template, pool: str | None) -> Entry:
        instance_id = f"i-{secrets.token_hex(8)}"
        directory = self._layout.instance(instance_id)
        instance = Instance(
            instance_id, template, directory.address, self._tokens.instance(instance_id), pool=pool
        )
        cgroups = [str(path) for path in self._cgroups.paths(instance_id)]
        record = Record(instance_id, template, pool, cgroups=cgroups)
        entry = Entry(instance, directory, record, began=asyncio.get_running_loop().time())
        self._entries[instance_id] = entry
        if pool is None:
            self._planner.caller_began(instance_id, now=entry.began)
        else:
            self._planner.began(pool, instance_id)
        return entry

    async def _spawn(self, entry: Entry, image: Image) -> None:
        try:
            process, pidfd = await self._in_thread(self._spawn_now, entry, image)
            entry.watch(pidfd, process=process, on_exit=self._exited)
        except OSError as error:
            raise BackendError(f"cannot start a sandbox: {error}") from error
        finally:
            entry.spawned.set()

    def _spawn_now(self, entry: Entry, image: Image) -> tuple[Any, int]:
        directory, record = entry.directory, entry.record
        directory.path.mkdir(mode=0o700)
        # Before the groups and the process exist: whoever finds the directory knows what to look for.
        record.save(directory.record)
        config = sidecar_config(
            instance=entry.instance,
            directory=directory,
            image=image,
            cgroup_parent=self._cgroups.create(record.id),
            # Only the host's root holds our own files; an image's paths of the same name are its own.
            mask=self._hidden.paths() if image.is_host else (),
            settings=self._launch_settings,
        )
        write_config(directory, config)
        process = spawn(directory, settings=self._launch_settings)
        pidfd = os.pidfd_open(process.pid)  # a child cannot vanish before it is waited for
        record.process = key_of(process.pid)
        record.save(directory.record)
        return process, pidfd

    async def _launch_for_pool(self, spec: PoolSpec) -> Instance:
        return await self.launch(spec.template, pool=spec.name)

    def ready(self, instance_id: str) -> None:
        entry = self._entries.get(instance_id)
        if entry is not None:
            entry.was_ready = True
            self._planner.ready(instance_id)
            self._keeper.wake()

    # Ends.

    def _exited(self, entry: Entry) -> None:
        """The process is gone: nobody asked for it, unless the entry is leaving."""
        if entry.leaving is not None or self._events is None:
            return
        tail = log_tail(entry.directory)
        code = "" if entry.exit_code is None else f" with status {entry.exit_code}"
        verb = "ended" if entry.was_ready else "ended before it was ready"
        message = f"the sidecar {verb}{code}" + (f": {tail}" if tail else "")
        self._lost(entry, verdict="sidecar_lost" if entry.was_ready else "start_failed", message=message)

    def _lost(self, entry: Entry, *, verdict: str, message: str) -> None:
        instance = entry.instance
        if not entry.was_ready and instance.pool is not None:
            now = asyncio.get_running_loop().time()
            self._planner.failed(instance.pool, instance.id, now=now, message=message)
        self._own(self.destroy(instance.id), name=f"destroy {instance.id}")
        if self._events is not None:
            self._events.instance_lost(instance.id, verdict=verdict, message=message)

    async def destroy(self, instance_id: str) -> None:
        entry = self._entries.get(instance_id)
        if entry is None:
            return
        if entry.leaving is None:
            entry.leaving = self._own(self._take_away(entry), name=f"destroy {instance_id}")
        await asyncio.shield(entry.leaving)

    async def _take_away(self, entry: Entry) -> None:
        self._planner.gone(entry.instance.id)
        await entry.spawned.wait()
        clean = entry.exited.is_set() and entry.exit_code == 0
        if not entry.exited.is_set():
            clean = await self._end(entry)
        await self._clear(entry.directory, entry.record, search=not clean)
        self._entries.pop(entry.instance.id, None)
        self._keeper.wake()

    async def _end(self, entry: Entry) -> bool:
        """Asks the sidecar to end, then makes it. Whether it took its own things down."""
        try:
            asked = await self._post(entry, "/v1/end", b'{"verdict":"deleted"}', timeout=2.0)
        except PoolError:
            asked = None
        if (
            asked is not None
            and asked.status == 200
            and await entry.wait_exit(timeout=self._settings.end_grace)
        ):
            return entry.exit_code in (0, None)
        entry.kill()
        await entry.wait_exit(timeout=5.0)
        return False

    async def _clear(self, directory: InstanceDir, record: Record | None, *, search: bool) -> None:
        paths = [Path(text) for text in record.cgroups] if record is not None else []
        await self._in_thread(remove_remains, directory, paths or self._cgroups.paths(directory.id), search)

    async def destroy_all(self) -> None:
        await self._keeper.close()
        self._keeper.forget_all()
        await asyncio.gather(*(self.destroy(instance_id) for instance_id in list(self._entries)))

    # Use again.

    async def recycle(self, instance: Instance, *, generation: int) -> bool:
        entry = self._entries.get(instance.id)
        if entry is None or entry.leaving is not None or entry.exited.is_set() or self._closing:
            return False
        if entry.record.resets >= self._settings.max_resets:
            return False
        now = asyncio.get_running_loop().time()
        name = self._planner.wants(instance.template.key, now=now, warm=self._keeper.warm())
        if name is None:
            return False
        self._planner.began(name, instance.id)
        entry.was_ready, entry.began = False, now
        done = await self._reset(entry, name, generation=generation)
        if not done:
            self._planner.gone(instance.id)
        return done

    async def _reset(self, entry: Entry, pool: str, *, generation: int) -> bool:
        instance, record = entry.instance, entry.record
        instance.pool = record.pool = pool
        record.resets += 1
        try:
            await self._in_thread(record.save, entry.directory.record)
            body = b'{"keep_claim":false,"generation":%d}' % generation
            answer = await self._post(entry, "/v1/reset", body, timeout=10.0)
            state = answer.json()
        except (PoolError, OSError) as error:
            log.warning("instance %s: no answer to its reset: %s", instance.id, error)
            # Its `ready` may have come all the same, and then it may have an owner already.
            return entry.was_ready
        if answer.status != 200 or not isinstance(state, dict) or state.get("equal") is not True:
            why = state.get("proof") or state.get("message") if isinstance(state, dict) else answer.status
            log.warning("instance %s: not equal to fresh after a reset: %s", instance.id, why)
            return False
        return True

    # Pools.

    def pools(self) -> list[PoolStatus]:
        return self._keeper.statuses()

    def pool(self, name: str) -> PoolSpec | None:
        return self._planner.spec(name)

    async def set_pool(self, spec: PoolSpec) -> None:
        await self._keeper.set(spec)

    async def delete_pool(self, name: str) -> bool:
        return await self._keeper.delete(name)

    def nudge(self, pool: str) -> None:
        self._planner.claimed(pool, now=asyncio.get_running_loop().time())
        self._keeper.wake()

    # What is there.

    def begun(self, instance_id: str) -> float | None:
        entry = self._entries.get(instance_id)
        return entry.began if entry is not None else 0.0

    def instance(self, instance_id: str) -> Instance | None:
        entry = self._entries.get(instance_id)
        return None if entry is None or entry.leaving is not None else entry.instance

    def hear(self, instance_id: str, state: dict[str, Any]) -> Instance | None:
        return self.instance(instance_id)

    def claimed(self, instance: Instance, claim: Claim, *, ours: bool) -> None:
        """The sidecar's own record is enough here."""

    async def promise(self, promise: Promise) -> None:
        """There is no other gateway."""

    def promise_ended(self, sandbox_id: str, *, verdict: str, message: str | None) -> None:
        """The same."""

    def ended(
        self, instance_id: str, *, verdict: str, message: str | None, exit_code: int | None, heard: bool
    ) -> None:
        """`destroy` follows, and leaves nothing to be asked."""

    def sought(self, sandbox_id: str) -> None:
        """There is no other gateway to ask."""

    def missed(self, new: bool) -> None:
        """There is no other gateway that could have made it."""

    def stats(self) -> dict[str, Any]:
        """The machine, and memory (bytes), cpu (seconds) and pids of each instance; at most a second old."""
        if self._stats is None or time.monotonic() - self._stats[0] > 1.0:
            usage = {instance_id: asdict(self._cgroups.usage(instance_id)) for instance_id in self._entries}
            self._stats = (
                time.monotonic(),
                {
                    **machine_stats(),
                    "instances": len(self._entries),
                    "max_instances": self._settings.max_instances,
                    "cgroup": self._cgroups.version,
                    "notes": self.notes,
                    "usage": usage,
                },
            )
        return self._stats[1]

    # Start-up.

    async def _find(self, events: Events) -> None:
        """Takes over the living and clears the dead away, many at a time."""
        limit = asyncio.Semaphore(64)

        async def look(directory: InstanceDir) -> None:
            token = self._tokens.instance(directory.id)
            async with limit:
                found = await examine(
                    directory, token=token, pool=self._pool, patience=self._settings.patience
                )
                if isinstance(found, Living):
                    self._adopt(found, token, events)
                else:
                    await self._bury(found, events)

        directories = {directory.path: directory for directory in self._layout.instance_dirs()}
        # Somebody may have removed a directory under its running sidecar.
        for config in await self._in_thread(sidecar_configs, self._layout.instances):
            directories.setdefault(config.parent, InstanceDir(config.parent))
        async with asyncio.TaskGroup() as group:
            for directory in directories.values():
                group.create_task(look(directory))

    def _adopt(self, found: Living, token: str, events: Events) -> None:
        record, directory = found.record, found.directory
        loop = asyncio.get_running_loop()
        instance = Instance(record.id, record.template, directory.address, token, record.pool)
        entry = Entry(instance, directory, record, began=loop.time())
        entry.was_ready = found.state.get("phase") != "starting"
        entry.spawned.set()
        self._entries[record.id] = entry
        if not entry.was_ready and record.pool is not None:
            self._planner.began(record.pool, record.id)
        entry.watch(found.pidfd, process=None, on_exit=self._exited)
        events.instance_found(instance, found.state)

    async def _bury(self, found: Dead, events: Events) -> None:
        log.info("instance %s is dead (%s), clearing it away", found.directory.id, found.why)
        await self._clear(found.directory, found.record, search=True)
        message = f"the sandbox was lost while no gateway ran: {found.why}"
        events.instance_lost(found.directory.id, verdict="sidecar_lost", message=message)

    # Upkeep.

    async def _upkeep(self) -> None:
        while True:
            await asyncio.sleep(self._settings.upkeep)
            now = asyncio.get_running_loop().time()
            for entry in list(self._entries.values()):
                if not entry.was_ready and entry.leaving is None:
                    await self._overdue(entry, now)
                await self._in_thread(bound_log, entry.directory)
            for directory in await self._in_thread(self._layout.instance_dirs):
                # What could not be taken away at its time: a process may have been stuck in the kernel.
                if directory.id not in self._entries:
                    await self._clear(directory, load_record(directory.record), search=True)

    async def _overdue(self, entry: Entry, now: float) -> None:
        if now - entry.began < self._settings.start_timeout:
            return
        tail = log_tail(entry.directory)
        message = f"the sandbox was not ready within {self._settings.start_timeout:g} s" + (
            f": {tail}" if tail else ""
        )
        self._lost(entry, verdict="start_failed", message=message)

    async def _post(self, entry: Entry, target: str, body: bytes, *, timeout: float) -> Any:
        headers = [
            ("authorization", f"Bearer {entry.instance.token}"),
            ("content-type", "application/json"),
        ]
        return await self._pool.fetch(
            entry.instance.address, "POST", target, headers=headers, body=body, timeout=timeout
        )

    def _in_thread(self, function: Callable[..., T], *arguments: Any) -> Awaitable[T]:
        return asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    def _own(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.debug("%s: %s", task.get_name(), error)
