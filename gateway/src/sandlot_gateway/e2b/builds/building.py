"""Builds templates in the background: waits for a build's sandbox, replays the steps, keeps the files, moves the tags."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack

from pydantic import ValidationError
from sandlot_contract.statuses import Status

from sandlot_gateway.checkpoints.checkpoint import State as CheckpointState
from sandlot_gateway.control.checkpoint_models import CheckpointRequest
from sandlot_gateway.control.checkpoints import begin_checkpoint, checkpoints_of
from sandlot_gateway.control.errors import ApiError
from sandlot_gateway.control.services import Services
from sandlot_gateway.data.errors import UpstreamError, WireError
from sandlot_gateway.data.pool import HttpPool
from sandlot_gateway.data.request_gate import RequestGate
from sandlot_gateway.sandboxes import Sandbox
from sandlot_gateway.tasks import Tasks, in_thread

from ..failures import EnvdFailure, Problem
from ..saved import Saved
from .archives import Archives
from .commands import Commands
from .logbook import Log
from .records import BuildRecord, Records, State
from .replay import Failed, Replay
from .steps import Step, in_their_words
from .sweeping import END_WITHIN, Sweeper
from .template_records import Gone, Tagged

_log = logging.getLogger(__name__)

LIMIT = 3600.0  # seconds of a build
SLACK = 120.0  # seconds that its sandbox lives longer
MOST_TAGS = 256  # of a template
_PAUSE = 0.2  # seconds
_AT_ONCE = 8  # builds of a tenant at one gateway


class Builder:
    def __init__(
        self,
        have: Services,
        *,
        records: Records,
        archives: Archives,
        sweeper: Sweeper,
        gate: RequestGate,
        pool: HttpPool,
    ) -> None:
        self._have = have
        self._records = records
        self._sweeper = sweeper
        self._archives = archives
        self._gate = gate
        self._pool = pool
        self._tasks = Tasks()
        self._running: dict[str, int] = {}  # tenant -> builds

    @contextlib.contextmanager
    def place(self, tenant: str) -> Iterator[None]:
        """Take one of the places of a tenant's builds at this gateway, until the block is left. Raises Problem."""
        if self._running.get(tenant, 0) >= _AT_ONCE:
            text = f"{_AT_ONCE} builds of yours run already: wait until one has ended"
            raise Problem(429, text, headers=[(b"retry-after", b"5")])
        self._running[tenant] = self._running.get(tenant, 0) + 1
        try:
            yield
        finally:
            self._running[tenant] -= 1
            if not self._running[tenant]:
                del self._running[tenant]

    def begin(
        self, build: BuildRecord, sandbox: Sandbox, saved: Saved, steps: list[Step], held: ExitStack
    ) -> None:
        """Run a build; what it holds, its lock and its place, is left at its end."""
        task = self._tasks.spawn(self._run(build, sandbox, saved, steps))
        # Not in the task, which does not begin if the gateway stops first.
        task.add_done_callback(lambda _: held.close())

    def commands(self, sandbox: Sandbox) -> Commands:
        return Commands(pool=self._pool, gate=self._gate, sandbox_id=sandbox.id, tenant=sandbox.tenant)

    async def close(self) -> None:
        """Fail the builds that run; their sandboxes end."""
        await self._tasks.close(end_within=END_WITHIN)

    async def ready(self, build: BuildRecord, checkpoint: str) -> None:
        """Let the build's tags name a checkpoint. Raises OSError, Gone."""
        # A cancel waits for it: whoever looks next must know whether the tags have moved.
        await in_thread(self._tag, build, checkpoint)
        await self._sweeper.forget_former(build.template, tenant=build.tenant)

    def _tag(self, build: BuildRecord, checkpoint: str) -> None:
        with self._records.template(
            build.template, tenant=build.tenant, name=build.name, life=build.life
        ) as record:
            assign(record.tags, record.former, build.tags, Tagged(build.id, checkpoint, time.time()))
        build.checkpoint, build.state = checkpoint, State.READY
        self._records.save(build)

    async def _run(self, build: BuildRecord, sandbox: Sandbox, saved: Saved, steps: list[Step]) -> None:
        log = Log(self._records.log_path(build))
        try:
            async with asyncio.timeout(LIMIT), log.written():
                checkpoint = await self._built(build, sandbox, saved, steps, log)
            log.add("the template is ready", step="finalize")
            await log.flush()
            await self.ready(build, checkpoint)
        except asyncio.CancelledError:
            # A sweep deletes the files: the gateway's end must not wait for the volume.
            self._record_failure(build, "the gateway stopped during the build: build the template again")
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

    async def _built(
        self, build: BuildRecord, sandbox: Sandbox, saved: Saved, steps: list[Step], log: Log
    ) -> str:
        """Return the checkpoint with the template's files. Raises Failed and others."""
        loop = asyncio.get_running_loop()
        until = loop.time() + LIMIT
        log.add(f"waiting for a sandbox of {sandbox.spec.image}", step="base")
        while sandbox.status is Status.PENDING:
            await self._have.directory.changed(sandbox.id, timeout=5.0)
            if sandbox.status is Status.PENDING:
                # While the gateway shuts down, no wait for a change takes any time.
                await asyncio.sleep(_PAUSE)
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
        # Before its files are there: else nothing would name those of a gateway that dies.
        build.checkpoint = f"cp-{secrets.token_hex(12)}"
        await in_thread(self._records.save, build)
        try:
            checkpoint = await begin_checkpoint(
                sandbox, self._have, body=body, checkpoint_id=build.checkpoint
            )
        except ApiError as error:
            raise Failed(f"the files cannot be kept: {error.detail}", step="finalize") from error
        found = await checkpoints_of(self._have).settled(checkpoint.tenant, checkpoint.id)
        if found is None or found.state is CheckpointState.FAILED:
            why = "they were deleted" if found is None else found.error
            raise Failed(f"the files cannot be kept: {why}", step="finalize")
        return found.id

    async def _failed(self, build: BuildRecord, message: str, *, log: Log, step: str | None = None) -> None:
        """Record a failure, and delete the files; a sweep tries again what cannot be done now."""
        log.add(message, step=step, level="error")
        try:
            await log.flush()
        except OSError as error:
            _log.error("cannot write the log of a build: %s", error)
        await in_thread(self._record_failure, build, message, step)
        try:
            await self._sweeper.discard(build)
        except (OSError, ApiError) as error:
            _log.error("cannot delete the files of a build that failed: %s", error)

    def _record_failure(self, build: BuildRecord, message: str, step: str | None = None) -> None:
        if build.state is State.READY:  # its tags have moved
            return
        build.state, build.message, build.step = State.ERROR, message, step
        try:
            self._records.save(build)
        except OSError as error:
            _log.error("cannot record the failure of a build: %s", error)


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
