"""Starts an instance: checks the limits, makes its directory and control groups, starts its sidecar."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable

from sandlot_contract.ids import InstanceId
from sandlot_contract.new_ids import new_instance_id
from sandlot_contract.template import Template

from ...core.backend import BackendError, Unavailable
from ...core.instances import Instance
from ...tokens import Tokens
from .background import Background
from .cgroups import Cgroups
from .entries import Entry
from .gpus import Found, Gpus
from .hidden import Hidden
from .images import Image, ImageStore
from .launcher import LaunchSettings, sidecar_config, spawn, write_config
from .layout import Layout
from .planner import Planner
from .processes import key_of
from .records import Record
from .remover import Remover

_RUNTIME_CLASS = "namespaces"


def check_runtime_class(template: Template) -> None:
    """Raise BackendError unless the template leaves the runtime class out, or names the only one there is here."""
    if template.runtime_class not in (None, "", _RUNTIME_CLASS):
        raise BackendError(
            f"the local backend has no runtime class {template.runtime_class!r}: leave it out",
            error_type="UNSUPPORTED",
            field="runtime_class",
        )


class Starter:
    def __init__(
        self,
        entries: dict[InstanceId, Entry],
        *,
        background: Background,
        planner: Planner,
        remover: Remover,
        images: ImageStore,
        cgroups: Callable[[], Cgroups],
        layout: Layout,
        hidden: Hidden,
        gpus: Gpus,
        tokens: Tokens,
        settings: LaunchSettings,
        max_instances: int,
    ) -> None:
        self._entries = entries
        self._background = background
        self._planner = planner
        self._remover = remover
        self._images = images
        self._cgroups = cgroups
        self._layout = layout
        self._hidden = hidden
        self._gpus = gpus
        self._tokens = tokens
        self._settings = settings
        self._max_instances = max_instances

    async def launch(self, template: Template, *, pool: str | None) -> Instance:
        """Start an instance, see `Backend.launch`."""
        image = await self._images.prepare(template.image)
        found = await self.gpus_for(template)
        check_runtime_class(template)
        if self._background.closing:
            raise Unavailable("the gateway is stopping")
        if len(self._entries) >= self._max_instances:
            raise Unavailable(
                f"{len(self._entries)} sandboxes run on this machine, which is its limit: delete some"
            )
        # Entered before anything is awaited: another start would choose the same GPUs.
        minors = self._gpus.choose(template.gpu_count, found) if found is not None else []
        entry = self._enter(template, pool, minors)
        instance_id = entry.instance.id
        try:
            # Shielded: a caller that disconnects must not leave an unwatched process.
            await asyncio.shield(
                self._background.spawn(self._spawn(entry, image, found), name=f"spawn {instance_id}")
            )
        except asyncio.CancelledError:
            self._remover.destroy_soon(instance_id)
            raise
        except BackendError:
            await self._remover.destroy(instance_id)
            raise
        return entry.instance

    async def gpus_for(self, template: Template) -> Found | None:
        """Return the machine's GPUs for this template, None if it wants none. Raises BackendError if it can have none."""
        if not template.gpu_count:
            return None
        return await self._background.in_thread(self._gpus.find, template)

    def _enter(self, template: Template, pool: str | None, gpus: list[int]) -> Entry:
        instance_id = new_instance_id()
        directory = self._layout.instance(instance_id)
        cgroups = [str(path) for path in self._cgroups().paths(instance_id)]
        record = Record(instance_id, template, pool, cgroups=cgroups, gpus=gpus)
        token = self._tokens.instance(instance_id)
        instance = Instance(instance_id, template, directory.address, token, pool, record.created_at)
        entry = Entry(instance, directory, record, began=asyncio.get_running_loop().time())
        self._entries[instance_id] = entry
        if pool is None:
            self._planner.caller_began(instance_id, now=entry.began)
        else:
            self._planner.began(pool, instance_id)
        return entry

    async def _spawn(self, entry: Entry, image: Image, found: Found | None) -> None:
        try:
            process, pidfd = await self._background.in_thread(self._spawn_now, entry, image, found)
            entry.watch(pidfd, process=process, on_exit=self._remover.exited)
        except OSError as error:
            raise BackendError(f"cannot start a sandbox: {error}") from error
        finally:
            entry.spawned.set()

    def _spawn_now(
        self, entry: Entry, image: Image, found: Found | None
    ) -> tuple[subprocess.Popen[bytes], int]:
        directory, record = entry.directory, entry.record
        directory.path.mkdir(mode=0o700)
        # Before groups and process exist: the record says what to look for after a crash.
        record.save(directory.record)
        config = sidecar_config(
            instance=entry.instance,
            directory=directory,
            image=image,
            cgroup_parent=self._cgroups().create(record.id),
            mask=self._hidden.paths(),
            gpus=self._gpus.document(record.gpus, found) if found is not None else None,
            settings=self._settings,
        )
        write_config(directory, config)
        process = spawn(directory, settings=self._settings)
        pidfd = os.pidfd_open(process.pid)  # a child's pid stays valid until it is reaped
        record.process = key_of(process.pid)
        record.save(directory.record)
        return process, pidfd
