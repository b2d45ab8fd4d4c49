"""Drives the instance's state machine: reports events to it and carries out the actions."""

from __future__ import annotations

import asyncio
import os
import time

from sandlot_contract.verdicts import CommandVerdict

from ..core import ends
from ..core.errors import ApiError, SidecarError
from ..core.instance import CONTRACT_PHASES, InstanceState, Outcome
from . import claim as claims
from . import gateway as gateways
from . import log, nameservers, readiness, statedoc
from . import record as records
from .claim_application import ClaimApplication
from .disk import Disk
from .egress.owned import OwnedPolicy
from .ending import PATIENCE, Ending
from .executor_client import ExecutorClient, ExecutorError, ExecutorGone
from .journal import Journal
from .links.owned import OwnedLinks
from .losses import Losses
from .ops import Ops
from .owner_changes import OwnerChanges
from .resetting import Resetting
from .restoration import Restoration
from .sandbox import Sandbox
from .serving import Serving
from .tasks import Tasks
from .use import Use
from .waiting_ends import WaitingEnds
from .webhooks import CLAIM_TOLD_AFTER, Webhooks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Unpack

    from ..config import Config
    from ..core.ends import Conditions, End
    from .tls import Tls


class Instance:
    """Owns the executor, the ops, the record on disk, the timers and the webhooks."""

    def __init__(self, *, config: Config, executor: ExecutorClient, tls: Tls | None = None) -> None:
        self.config = config
        self.executor = executor
        self.life = InstanceState(records.load(config.state_dir))
        self.record = self.life.record
        self.sandbox = Sandbox(config, executor)
        self.impossible = 0  # events that cannot happen in their phase
        self.ops = Ops(executor=executor, limits=config.ops, state_dir=config.state_dir)
        self.journal = Journal(config.state_dir)
        gateway = gateways.of(config, tls)
        self.webhooks = Webhooks(gateway, heartbeat=config.heartbeat, document=self.state)
        self.on_token: Callable[[str | None], None] = lambda token: None
        self._lock = asyncio.Lock()  # serializes claim, reset and end
        self.tasks = Tasks()
        self.use = Use(self.ops, end=self._end_of_use, sandbox=self.sandbox)
        self._ending = Ending(
            use=self.use, ops=self.ops, sandbox=self.sandbox, webhooks=self.webhooks, tasks=self.tasks
        )
        self.finished = self._ending.finished
        self._waiting_ends = WaitingEnds(self.life, self.use)
        self.disk = Disk(self.ops, measured=config.target)
        # In a pod without an overlay over it, the sandbox can write /etc/resolv.conf.
        keep = os.path.join(config.state_dir, "resolv.conf") if config.target else None
        self._egress = OwnedPolicy(
            record=self.record, store=self._store, executor=executor, names=nameservers.read(keep=keep)
        )
        self._links = OwnedLinks(executor, gateway, shares_network=not config.target, listen=config.listen)
        self._application = ClaimApplication(
            self.life, self.sandbox, self.ops, self._egress, self._links, self._store
        )
        self.restoration = Restoration(
            self.life, state_dir=config.state_dir, late=self._end_of_use, heard=self._heard,
            ready=self._restored,
        )  # fmt: skip
        self.serving = Serving(
            self.life, in_pod=bool(config.target), sandbox=self.sandbox, ops=self.ops, use=self.use,
            webhooks=self.webhooks,
        )  # fmt: skip
        self._resetting = Resetting(
            self.life, state_dir=config.state_dir, sandbox=self.sandbox, use=self.use, ops=self.ops,
            policy=self._egress, links=self._links, journal=self.journal, disk=self.disk,
            restoration=self.restoration, heard=self._heard, released=lambda: self.on_token(None),
            ready=self.serving.begin,
        )  # fmt: skip
        self.changes = OwnerChanges(
            self.life, lock=self._lock, sandbox=self.sandbox, use=self.use, policy=self._egress,
            links=self._links, store=self._store,
        )  # fmt: skip
        self.ops.on_change = self._ops_changed
        self.ops.journal = self.journal.write
        Losses(
            self.end, executor=executor, webhooks=self.webhooks, sandbox=self.sandbox, ops=self.ops,
            renewed=self._renewed,
        )  # fmt: skip

    @property
    def phase(self) -> str:
        """Name of the phase in the contract."""
        return CONTRACT_PHASES[self.life.phase]

    def state(self) -> dict[str, Any]:
        """Return the contract's state document."""
        return statedoc.state(self)

    def _heard(self, heard: Outcome) -> bool:
        """Return whether an event was news; log and count an impossible one."""
        if heard is Outcome.IMPOSSIBLE:
            self.impossible += 1
            log.event("impossible", phase=self.life.phase.name, event=self.life.impossible)
        return heard is Outcome.NEWS

    # -- start -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Build the sandbox, run a command in it, send `ready`."""
        claim = self.record.claim
        if self.life.over:  # an earlier process ended it and could not send `ended`
            self._open_to_owner()
            self._ending.announce()
            return
        self.webhooks.prepare()
        lost, over = self.journal.load()
        try:
            await self.sandbox.build(image=self.record.image, resume=claim is not None)
            if claim is not None:
                await self.sandbox.apply(claim, self.ops.pool, unused=False)
            self._egress.by_tables = bool(self.sandbox.setup.get("guarded"))
            await self._egress.again()
            self.sandbox.prepare(self.ops, claim)
            self.ops.pool.open()
            missing = await self._links.begin_again(claim)
            await readiness.run_first_command(self.ops, owned=claim is not None)
        except SidecarError as error:
            async with self._lock:
                await self._end(ends.not_built(str(error)))
            return
        if self.life.over:
            return
        self.ops.restore(lost, over)
        if claim is not None and claim["restore"] and not self.restoration.was_done():
            self._end_of_use(ends.not_restored("the sidecar restarted before the files arrived"))
            return
        self._heard(self.life.built())
        if claim is not None:
            self._open_to_owner()
            self.sandbox.notes += ["the sidecar restarted: earlier processes are gone", *missing]
        self.serving.begin()
        log.event("ready", phase=self.phase, notes=self.sandbox.notes)

    def _open_to_owner(self) -> None:
        if self.record.claim is not None:
            self.on_token(self.record.claim["token"])

    # -- claim -----------------------------------------------------------------------------------------------

    async def claim(
        self, body: dict[str, Any], *, generation: int | None, ids: dict[str, str] | None = None
    ) -> None:
        """Claim by compare-and-set; returns once the claim is on disk and in force. Raises ApiError.

        `ids`: the request's, for the log.
        """
        claim = claims.parse(body, self.config.root)
        self._links.check(claim)
        async with self._lock:
            if not self.life.claim(claim, generation=generation, now=time.time()):
                return
            self.use.ahead.stop()  # preparing would delay the claim, and be for the earlier image
            try:
                await self._application.apply(claim)
            except BaseException as error:
                self._heard(self.life.claim_failed())
                self.serving.await_claim()
                if isinstance(error, ExecutorError) and error.code == "setup":
                    await self._end(ends.not_built(str(error)))
                if isinstance(error, ExecutorGone):
                    raise ApiError(503, "broken", str(error)) from error
                raise
            self._heard(self.life.claimed())
            self._open_to_owner()
            self.sandbox.prepare(self.ops, claim)
            self.use.begin(self.record)
            if self.life.restoring:
                self.restoration.expect()
            else:
                self.use.run_start_command(self.record)
        told = {"sandbox_id": claim["sandbox_id"], "generation": self.record.generation}
        log.event("claimed", **told, **(ids or {}))
        self.webhooks.claimed(after=CLAIM_TOLD_AFTER)

    def _store(self) -> None:
        # A pod does not survive a crash of its node: there the record only has to outlive this process.
        records.store(self.config.state_dir, self.record, durable=not self.config.target)

    def _renewed(self) -> None:
        """Link the services again after the init was replaced: its network is another one, its files may be."""
        self.tasks.spawn(self.changes.link_again(self.record.generation))

    def _restored(self) -> None:
        self.use.run_start_command(self.record)
        self.webhooks.claimed()  # gateways that did not send the files learn of them

    def _ops_changed(self) -> None:
        self.use.activity()
        self.disk.look()

    # -- reset -----------------------------------------------------------------------------------------------

    async def reset(self, *, keep_claim: bool, generation: int | None = None) -> dict[str, Any]:
        """Reset to a fresh sandbox; return the executor's proof. Raises ApiError, also for another generation."""
        async with self._lock:
            if self.sandbox.is_shared:
                raise ApiError(
                    409, "unsupported", "the sandbox began with another one's files: create a new one"
                )
            overlay = bool(self.sandbox.setup.get("overlay"))
            kept = self.life.reset(keep_claim=keep_claim, generation=generation, overlay=overlay)
            self.use.stop()
            self._links.stop()
            self.webhooks.stop()
            await self._resetting.end_ops(graceful=not self._waiting_ends.one_applies())
            try:
                answer = await self._resetting.empty(kept)
            except SidecarError as error:
                await self._end(ends.not_reset(str(error)))
                raise ApiError(503, "reset_failed", str(error)) from error
            if not answer.get("equal"):
                await self._end(ends.not_fresh(answer["proof"]["differences"]))
        return {name: answer.get(name) for name in ("took_ms", "proof", "equal")}

    # -- end -------------------------------------------------------------------------------------------------

    async def end(
        self,
        end: End,
        *,
        patience: float = PATIENCE,
        after_owner: bool = False,
        **conditions: Unpack[Conditions],
    ) -> None:
        """End the sandbox, see `InstanceState.end`; the webhook is retried for `patience` seconds. Raises ApiError.

        `after_owner`: an owner that keeps the instance is its last one.
        """
        self._waiting_ends.add(conditions)
        try:
            async with self._lock:  # waits for a claim in progress, which then counts
                if after_owner and self.life.retire():
                    self._store()
                else:
                    await self._end(end, patience=patience, **conditions)
        finally:
            self._waiting_ends.remove(conditions)

    async def _end(self, end: End, *, patience: float = PATIENCE, **conditions: Unpack[Conditions]) -> None:
        if not self._heard(self.life.end(end, **conditions)):
            return
        self.use.stop()
        self._links.stop()
        self.webhooks.stop()
        self.restoration.stop()
        log.event("ended", verdict=end.verdict, message=end.message)
        try:
            self._store()
        except records.StoreError as error:
            log.failure("record_failed", error)
        await self._ending.carry_out(end, patience=patience)

    def _end_of_use(self, end: End) -> None:
        """End this generation, unless a reset in progress ends it first."""
        self.tasks.spawn(self.end(end, generation=self.record.generation))

    async def close(self) -> None:
        """Release everything at the end of the process."""
        self.use.stop()
        self.disk.close()
        self._links.stop()
        self._egress.close()
        await self.webhooks.close()
        await self.ops.end_all(CommandVerdict.SANDBOX_ENDED, message="the sidecar exits")
        await self.tasks.wait(timeout=5.0)
        await self.ops.close()
        self.journal.close()
        self.executor.on_gone = lambda: None
        self.executor.close()
        self.sandbox.close()
