"""Starts a requested build: checks its steps, finds an equal build, or creates the sandbox in which it runs."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Any

from pydantic import ValidationError

from sandlot_gateway.checkpoints.checkpoint import State as CheckpointState
from sandlot_gateway.control.checkpoints import checkpoints_of
from sandlot_gateway.control.errors import ApiError
from sandlot_gateway.control.models import CreateRequest
from sandlot_gateway.control.sandboxes import create_sandbox
from sandlot_gateway.control.services import Services
from sandlot_gateway.data.answers import Receive
from sandlot_gateway.keys import Tenant
from sandlot_gateway.sandboxes import Sandbox

from ..failures import Problem
from ..requests import read
from ..saved import Saved, of_metadata
from ..template import Template
from ..templates import Templates
from .archives import Archives
from .building import LIMIT, SLACK, Builder
from .catalogue import Catalogue
from .logbook import Log
from .records import BuildRecord, Records, State
from .steps import Start, check, in_their_words
from .template_records import Gone

LABEL = "e2b-build"  # of a build's sandbox
_IDLE = 600.0  # seconds after which the sandbox of a gateway that died ends


class Starter:
    """Methods raise Problem, ApiError."""

    def __init__(
        self,
        have: Services,
        *,
        records: Records,
        archives: Archives,
        builder: Builder,
        catalogue: Catalogue,
        templates: Templates,
    ) -> None:
        self._have = have
        self._records = records
        self._archives = archives
        self._builder = builder
        self._catalogue = catalogue
        self._templates = templates

    async def start(self, build: BuildRecord, body: bytes, *, receive: Receive, who: Tenant) -> None:
        """Begin the steps of a requested build, in a sandbox of the tenant."""
        asked = read(body, Start)
        check(asked)
        directory = self._records.tenant_directory(build.template)
        for number, step in enumerate(asked.steps or ()):
            if step.files_hash is not None and not await asyncio.to_thread(
                self._archives.present, directory, step.files_hash
            ):
                raise Problem(
                    400, f"steps.{number}.filesHash: these files were not uploaded: upload them first"
                )
        with ExitStack() as held:
            held.enter_context(self._builder.place(who.name))
            base = await self._base(asked, who)
            lock = await asyncio.to_thread(self._records.lock, build)
            if lock is not None:
                held.enter_context(lock)
            now = await asyncio.to_thread(self._records.build, build.template, build.id, tenant=who.name)
            if now is None or not await asyncio.to_thread(self._records.has_template, build):
                raise Problem(404, f"the template {build.name!r} was deleted: request another build")
            if lock is None or now.state is not State.WAITING:
                raise Problem(409, "the build has begun already: request another")
            saved = _inherited(asked, base, build)
            if not asked.forced and (known := await self._equal(build, saved.key)) is not None:
                await self._reuse(build, known)
                return
            sandbox = await self._sandbox(base, build, receive, who)
            try:
                await self._mark_begun(build, sandbox)
            except BaseException:
                self._have.lifecycle.ends.delete(sandbox)
                raise
            self._builder.begin(build, sandbox, saved, asked.steps or [], held.pop_all())

    async def _mark_begun(self, build: BuildRecord, sandbox: Sandbox) -> None:
        build.state, build.sandbox = State.BUILDING, sandbox.id
        await asyncio.to_thread(self._records.save, build)
        try:
            # After that: a delete of the template looks for builds that run once it is no longer found.
            await asyncio.to_thread(self._records.keep_template, build)
        except Gone as error:
            build.state, build.message = State.ERROR, str(error)
            await asyncio.to_thread(self._records.save, build)
            raise Problem(404, f"{error}: request another build") from error

    async def _reuse(self, build: BuildRecord, checkpoint: str) -> None:
        log = Log(self._records.log_path(build))
        log.add("an equal build was found, whose files are used", step="finalize")
        await log.flush()
        try:
            await self._builder.ready(build, checkpoint)
        except Gone as error:
            raise Problem(404, f"{error}: request another build") from error

    async def _base(self, asked: Start, who: Tenant) -> Template:
        """Return what the build's sandbox begins with."""
        if asked.from_image:
            return self._templates.image(asked.from_image)
        try:
            return await self._catalogue.find(asked.from_template or "", who)
        except Problem as problem:
            raise Problem(400, f"fromTemplate: {problem}") from problem

    async def _equal(self, build: BuildRecord, key: str) -> str | None:
        """Return the checkpoint of an equal build of the same template."""
        known = await asyncio.to_thread(self._records.find, build.template, tenant=build.tenant)
        tags = known.tags.values() if known is not None else ()
        for checkpoint_id in {each.checkpoint for each in tags}:
            found = await checkpoints_of(self._have).get(build.tenant, checkpoint_id)
            saved = None if found is None else of_metadata(found.metadata)
            if found and saved and found.state is CheckpointState.DURABLE and saved.key == key:
                return found.id
        return None

    async def _sandbox(self, base: Template, build: BuildRecord, receive: Receive, who: Tenant) -> Sandbox:
        fields: dict[str, Any] = {
            "name": f"build of {build.name}",
            "labels": [f"{LABEL}={build.id}"],
            "pool": base.pool,
            "docker_image": base.image,
            "checkpoint_id": base.checkpoint,
            "cpu_cores": build.cpu,
            "memory_gb": build.memory_gb,
            "timeout_seconds": LIMIT + SLACK,
            "idle_timeout_seconds": _IDLE,
            "wait_seconds": 0,
            "vm": True,
        }
        try:
            request = CreateRequest.model_validate(fields)
            return await create_sandbox(request, receive=receive, have=self._have, who=who)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise Problem(400, in_their_words(f"{place}: {first['msg']}")) from error
        except ApiError as error:
            # An unknown or unfinished snapshot is the request's fault here.
            status = 400 if error.status in (404, 409, 422) else error.status
            headers = [(name.lower().encode(), value.encode()) for name, value in error.headers.items()]
            raise Problem(status, in_their_words(str(error.detail)), headers=headers) from error


def _inherited(asked: Start, base: Template, build: BuildRecord) -> Saved:
    """Return what the template's sandboxes have before the first step."""
    before = base.saved or Saved()
    parts = asked.digest(build.cpu, build.memory_gb)
    origin = base.checkpoint or base.pool or base.image
    return Saved(
        template=build.template,
        build=build.id,
        key=f"{parts}:{origin}",
        env=dict(before.env),
        workdir=before.workdir,
        user=before.user,
        start=asked.start_cmd or before.start,
        ready=asked.ready_cmd or before.ready,
        cpu=build.cpu,
        memory_gb=build.memory_gb,
    )
