"""Builds templates in the background: waits for a build's sandbox, replays the steps, keeps the files, moves the tags."""

from __future__ import annotations

import asyncio
import logging
import time

from pydantic import ValidationError
from sandlot_contract.statuses import Status

from sandlot_gateway.checkpoints.store import State as CheckpointState
from sandlot_gateway.control.checkpoint_models import CheckpointRequest
from sandlot_gateway.control.checkpoints import begin_checkpoint, checkpoints_of
from sandlot_gateway.control.errors import ApiError
from sandlot_gateway.control.services import Services
from sandlot_gateway.data.errors import UpstreamError, WireError
from sandlot_gateway.data.pool import HttpPool
from sandlot_gateway.data.request_gate import RequestGate
from sandlot_gateway.sandboxes import Sandbox
from sandlot_gateway.tasks import Tasks

from ..copies import settled
from ..failures import EnvdFailure, Problem
from ..saved import Saved
from .archives import Archives, sweep
from .commands import Commands
from .logbook import Log
from .records import BuildRecord, Gone, Lock, Records, State, Tagged
from .replay import Failed, Replay
from .steps import Step, in_their_words

_log = logging.getLogger(__name__)

LIMIT = 3600.0  # seconds of a build
SLACK = 120.0  # seconds that its sandbox lives longer
FORMER_KEPT = 3600.0  # seconds for creates that have just read a tag
MOST_TAGS = 256  # of a template
_SWEEP_EVERY = 600.0  # seconds


class Builder:
    def __init__(
        self, have: Services, *, records: Records, archives: Archives, gate: RequestGate, pool: HttpPool
    ) -> None:
        self._have = have
        self._records = records
        self._archives = archives
        self._gate = gate
        self._pool = pool
        self._tasks = Tasks()
        self._running: dict[str, int] = {}  # tenant -> builds
        self._sweeping: asyncio.Task[None] | None = None

    def running(self, tenant: str) -> int:
        """Return how many builds of a tenant this gateway runs."""
        return self._running.get(tenant, 0)

    def begin(
        self, build: BuildRecord, sandbox: Sandbox, saved: Saved, steps: list[Step], lock: Lock
    ) -> None:
        """Run a build, whose lock this takes over."""
        self._running[build.tenant] = self.running(build.tenant) + 1
        self._tasks.spawn(self._run(build, sandbox, saved, steps, lock))

    def sweep_later(self) -> None:
        """Delete what is old from now on, until nothing is left that can become so."""
        if self._sweeping is None or self._sweeping.done():
            self._sweeping = self._tasks.spawn(self._sweep())

    async def _sweep(self) -> None:
        left = True
        while left:
            await asyncio.sleep(_SWEEP_EVERY)
            try:
                left = False
                for directory in await asyncio.to_thread(self._records.tenants):
                    left |= await asyncio.to_thread(self._records.sweep, directory)
                    left |= bool(await asyncio.to_thread(sweep, directory))
                    for template in await asyncio.to_thread(self._records.templates, directory):
                        left |= bool(template.former)
                        await self.forget_former(template.id, tenant=template.tenant)
            except OSError as error:
                _log.error("cannot delete what old builds left: %s", error)
                left = True

    def commands(self, sandbox: Sandbox) -> Commands:
        return Commands(pool=self._pool, gate=self._gate, sandbox_id=sandbox.id, tenant=sandbox.tenant)

    async def close(self) -> None:
        """Fail the builds that run; their sandboxes end."""
        await self._tasks.close()

    async def ready(self, build: BuildRecord, checkpoint: str) -> None:
        """Let the build's tags name a checkpoint. Raises OSError."""
        await asyncio.to_thread(self._tag, build, checkpoint)
        build.checkpoint = checkpoint
        build.state = State.READY
        await asyncio.to_thread(self._records.save, build)
        await self.forget_former(build.template, tenant=build.tenant)

    async def forget_former(self, template: str, *, tenant: str) -> None:
        """Delete the checkpoints of a template that no tag has named for a while. Raises OSError, ApiError."""
        checkpoints = checkpoints_of(self._have)
        before = time.time() - FORMER_KEPT

        record = await asyncio.to_thread(self._records.find, template, tenant=tenant)
        old = [] if record is None else [one for one, since in record.former.items() if since < before]
        if record is None or not old:
            return
        for checkpoint_id in old:
            found = await checkpoints.get(tenant, checkpoint_id)
            if found is not None:
                await checkpoints.delete(found)

        def forget() -> None:  # only now: a gateway that dies before would leave files that nothing names
            if self._records.find(template, tenant=tenant) is not None:
                with self._records.template(template, tenant=tenant, name=record.name) as now:
                    now.former = {one: since for one, since in now.former.items() if one not in old}

        await asyncio.to_thread(forget)

    async def _discard(self, build: BuildRecord, checkpoint_id: str) -> None:
        """Delete the files of a build unless a tag names them."""
        record = await asyncio.to_thread(self._records.find, build.template, tenant=build.tenant)
        if record is not None and any(each.checkpoint == checkpoint_id for each in record.tags.values()):
            return
        checkpoints = checkpoints_of(self._have)
        found = await checkpoints.get(build.tenant, checkpoint_id)
        if found is not None:
            await checkpoints.delete(found)

    def _tag(self, build: BuildRecord, checkpoint: str) -> None:
        with self._records.template(
            build.template, tenant=build.tenant, name=build.name, make=False
        ) as record:
            assign(record.tags, record.former, build.tags, Tagged(build.id, checkpoint, time.time()))

    async def _run(
        self, build: BuildRecord, sandbox: Sandbox, saved: Saved, steps: list[Step], lock: Lock
    ) -> None:
        log = Log(self._records.log_path(build))
        try:
            async with asyncio.timeout(LIMIT), log.written():
                checkpoint = await self._built(build, sandbox, saved, steps, log)
            log.add("the template is ready", step="finalize")
            await log.flush()
            try:
                await self.ready(build, checkpoint)
            except Exception:  # at a cancel, the thread that writes the tag goes on
                await self._discard(build, checkpoint)
                raise
        except asyncio.CancelledError:
            self._failed_now(build, "the gateway stopped during the build: build the template again")
            raise
        except TimeoutError:
            await self._failed(build, f"the build took longer than {LIMIT:g} s: build less at once", log=log)
        except Failed as error:
            await self._failed(build, str(error), step=error.step, log=log)
        except (EnvdFailure, UpstreamError, WireError, OSError, ApiError, Problem, Gone) as error:
            why = error.detail if isinstance(error, ApiError) else str(error) or type(error).__name__
            await self._failed(build, f"{why}; build the template again", log=log)
        except Exception:
            _log.exception("a build failed in an unexpected way", extra={"sandbox": sandbox.id})
            await self._failed(build, "the build failed in an unexpected way: see the gateway's log", log=log)
        finally:
            self._have.lifecycle.ends.delete(sandbox)
            lock.release()
            self._running[build.tenant] -= 1
            if not self._running[build.tenant]:
                del self._running[build.tenant]

    async def _built(
        self, build: BuildRecord, sandbox: Sandbox, saved: Saved, steps: list[Step], log: Log
    ) -> str:
        """Return the checkpoint with the template's files. Raises Failed and others."""
        loop = asyncio.get_running_loop()
        until = loop.time() + LIMIT
        log.add(f"waiting for a sandbox of {sandbox.spec.image}", step="base")
        while sandbox.status is Status.PENDING:
            await self._have.directory.changed(sandbox.id, timeout=5.0)
        if sandbox.status is not Status.RUNNING:
            why = in_their_words(sandbox.message or sandbox.reason or "without a message")
            text = f"the sandbox did not start: {sandbox.verdict}: {why}"
            raise Failed(text, step="base")
        replay = Replay(
            self.commands(sandbox),
            saved,
            archives=self._archives,
            directory=self._records.tenant_directory(build.template),
            log=log,
            until=until,
        )
        await replay.run(steps)
        log.add("keeping the files", step="finalize")
        return await self._kept(build, sandbox, saved)

    async def _kept(self, build: BuildRecord, sandbox: Sandbox, saved: Saved) -> str:
        try:
            body = CheckpointRequest(name=build.name, metadata=saved.metadata(), paths=[], without=[])
        except ValidationError as error:
            text = "the variables and commands of the template are too long together: put them into files"
            raise Failed(text, step="finalize") from error
        try:
            checkpoint = await begin_checkpoint(sandbox, self._have, body=body)
        except ApiError as error:
            raise Failed(f"the files cannot be kept: {error.detail}", step="finalize") from error
        found = await settled(checkpoint, self._have)
        if found is None or found.state is CheckpointState.FAILED:
            why = "they were deleted" if found is None else found.error
            raise Failed(f"the files cannot be kept: {why}", step="finalize")
        return found.id

    async def _failed(self, build: BuildRecord, message: str, *, log: Log, step: str | None = None) -> None:
        log.add(message, step=step, level="error")
        try:
            await log.flush()
            await asyncio.to_thread(self._failed_now, build, message, step)
        except OSError as error:
            _log.error("cannot record the failure of a build: %s", error)

    def _failed_now(self, build: BuildRecord, message: str, step: str | None = None) -> None:
        build.state, build.message, build.step = State.ERROR, message, step
        self._records.save(build)


def assign(tags: dict[str, Tagged], former: dict[str, float], names: list[str], to: Tagged) -> None:
    """Let tags name another build; a checkpoint that none names any more is a former one from now on. Raises Problem."""
    if len(tags.keys() | set(names)) > MOST_TAGS:
        raise Problem(400, f"tags: a template has at most {MOST_TAGS}: remove some first")
    before = {each.checkpoint for each in tags.values()}
    for name in names:
        tags[name] = to
    settle(tags, former, before)


def settle(tags: dict[str, Tagged], former: dict[str, float], before: set[str]) -> None:
    named = {each.checkpoint for each in tags.values()}
    for checkpoint in before - named:
        former.setdefault(checkpoint, time.time())
    for checkpoint in named & former.keys():
        del former[checkpoint]
