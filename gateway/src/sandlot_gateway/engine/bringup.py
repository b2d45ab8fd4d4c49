"""Brings up sandboxes: from a place in the queue to a claimed instance, or to a refusal."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from sandlot_contract.ids import SandboxId
from sandlot_contract.statuses import Status
from sandlot_contract.verdicts import SandboxVerdict

from sandlot_gateway.checkpoints.errors import RestoreFailed
from sandlot_gateway.core.backend import Backend
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.core.secret_refs import SecretSource
from sandlot_gateway.core.supply_events import CannotStart, QueueFull, StartFailed
from sandlot_gateway.directory import Directory
from sandlot_gateway.sandboxes import Sandbox
from sandlot_gateway.tasks import Tasks
from sandlot_gateway.tracing.trace import stage

from .claim_failures import Abandoned, ClaimRefused, LostAtOnce, NoSidecar
from .claims import Claimed, Claimer, Place
from .ends import Ends, Observer
from .errors import BadRequestField
from .open_creates import OpenCreates, Part
from .pending import PendingStore
from .secret_values import SecretsUnreadable, SecretValues

_log = logging.getLogger(__name__)

# field of the sidecar's claim -> field of the caller's request
_CLAIM_FIELDS = {
    "env": "environment_vars",
    "timeout": "timeout_seconds",
    "idle_timeout": "idle_timeout_seconds",
}
_BACKEND_FIELDS = {"image": "docker_image", "cpu": "cpu_cores", "memory": "memory_gb", "disk": "disk_size_gb"}
_REFUSAL_KEPT = 30.0  # seconds; callers that still hold the create open read it

Refusal = BadRequestField | CannotStart | QueueFull


class BringUp:
    """Runs each bring-up in the background, independent of the create request. Calls `ran` for each one that succeeds.

    Calls `refused` for each new create that is refused while its caller waits for the answer, unless its secrets were
    read: it was no sandbox.
    `lost` is asked about each create whose claim was lost before its answer, with its secrets and the number of such
    losses; it returns whether it takes the create over.
    `secrets`: None where creates cannot name secrets by reference.
    `restore` copies a checkpoint's files into an instance; None: checkpoints are not configured.
    """

    def __init__(
        self,
        *,
        creates: OpenCreates,
        directory: Directory,
        claimer: Claimer,
        backend: Backend,
        pending: PendingStore,
        ends: Ends,
        observer: Observer,
        ran: Callable[[Sandbox], None],
        refused: Callable[[Sandbox], None],
        lost: Callable[[Sandbox, dict[str, str], LostAtOnce, int], bool],
        secrets: SecretSource | None,
        restore: Callable[[Sandbox, Instance], Awaitable[None]] | None,
        clock: Callable[[], float],
    ) -> None:
        self._creates = creates
        self._directory = directory
        self._claimer = claimer
        self._backend = backend
        self._pending = pending
        self._ends = ends
        self._observer = observer
        self._ran = ran
        self._refused = refused
        self._lost = lost
        self._values = SecretValues(secrets)
        self._restore = restore
        self._clock = clock
        self._refusals: dict[SandboxId, Refusal] = {}
        self._unread: dict[
            SandboxId, str
        ] = {}  # create that waits for its secrets -> why they cannot be read
        self._reading: dict[
            SandboxId, asyncio.Event
        ] = {}  # creates whose secrets are read before they get a place
        self._tasks = Tasks()

    def unread(self, sandbox_id: SandboxId) -> str | None:
        """Return why its secrets cannot be read, or None if it does not wait for them."""
        return self._unread.get(sandbox_id)

    def refusal(self, sandbox_id: SandboxId) -> Refusal | None:
        """Return why its create was refused within the last 30 s, or None."""
        return self._refusals.get(sandbox_id)

    async def placed(self, sandbox_id: SandboxId) -> None:
        """Wait until the create has a place in the queue, or was refused one."""
        if (reading := self._reading.get(sandbox_id)) is not None:
            await reading.wait()

    def begin(
        self,
        sandbox: Sandbox,
        *,
        secrets: dict[str, str],
        ticket: Place | None,
        losses: int = 0,
        patient: bool = False,
    ) -> None:
        """Bring it up in the background. `ticket`: None if its secrets have to be read first.

        `patient`: its caller has the id already, so it waits where others are refused.
        """
        self._creates.begin(sandbox.id, Part.BRINGS_UP, secrets=secrets)
        if ticket is None:
            self._reading[sandbox.id] = asyncio.Event()
        self._tasks.spawn(self._run(sandbox, secrets=secrets, ticket=ticket, losses=losses, patient=patient))

    def failed(self, sandbox: Sandbox) -> None:
        """End and count a create that failed in an unexpected way before its bring-up could begin."""
        self._creates.brought_up(sandbox.id)
        self._ends.record(sandbox, verdict=SandboxVerdict.START_FAILED, message="internal error")
        if self._directory.get(sandbox.id) is sandbox:
            self._observer.created(sandbox, seconds=0.0)

    def go_on(self, sandbox: Sandbox, *, secrets: dict[str, str], losses: int = 0) -> None:
        """Take over a bring-up of another or an earlier gateway, patiently: its caller has the id already.

        `losses`: as `lost` got it.
        """
        # The instance of an earlier claim, whose end is not the sandbox's.
        sandbox.instance_id = None
        ticket = None if sandbox.spec.secret_refs else self._patient_ticket(sandbox)
        self.begin(sandbox, secrets=secrets, ticket=ticket, losses=losses, patient=True)

    async def _run(
        self, sandbox: Sandbox, *, secrets: dict[str, str], ticket: Place | None, losses: int, patient: bool
    ) -> None:
        began = time.monotonic()
        is_sandbox = True
        try:
            claimed = await self._claim(sandbox, secrets=secrets, ticket=ticket, patient=patient)
            if sandbox.spec.checkpoint is not None and sandbox.live:
                await self._restore_into(sandbox, claimed.instance)
        except Abandoned:
            return
        except (BadRequestField, CannotStart, QueueFull) as error:
            is_sandbox = self._refuse(sandbox, error, patient=patient)
        except ClaimRefused as error:
            field = _CLAIM_FIELDS.get(error.field or "", error.field or "body")
            if field == "egress" and sandbox.spec.egress is not None:
                field = f"network_{sandbox.spec.egress.field}"
            is_sandbox = self._refuse(sandbox, BadRequestField(str(error), field=field), patient=patient)
        except StartFailed as error:
            if error.field is not None:
                field = _BACKEND_FIELDS.get(error.field, error.field)
                is_sandbox = self._refuse(sandbox, BadRequestField(str(error), field=field), patient=patient)
            else:
                self._ends.record(sandbox, verdict=error.verdict, message=str(error))
        except (NoSidecar, RestoreFailed) as error:
            self._ends.record(sandbox, verdict=SandboxVerdict.START_FAILED, message=str(error))
        except LostAtOnce as error:
            if not self._lost(sandbox, secrets, error, losses + 1):
                self._ends.unanswered.lost(sandbox, error.loss, error.instance_id)
        except asyncio.CancelledError:
            raise
        except Exception:
            _log.exception("a create failed in an unexpected way", extra={"sandbox": sandbox.id})
            self._ends.record(sandbox, verdict=SandboxVerdict.START_FAILED, message="internal error")
        else:
            self._has_instance(sandbox, claimed)
        finally:
            self._unread.pop(sandbox.id, None)
            self._has_place(sandbox.id)
            self._creates.brought_up(sandbox.id)
            if sandbox.status is not Status.PENDING:
                self._pending.remove(sandbox.id)
            withdrawn = self._directory.get(sandbox.id) is not sandbox
            if sandbox.status is not Status.PENDING and is_sandbox and not withdrawn:
                # A refused one is counted by its request, and one of a group that failed was none.
                self._observer.created(sandbox, seconds=time.monotonic() - began)

    def _has_instance(self, sandbox: Sandbox, claimed: Claimed) -> None:
        if not sandbox.live:  # deleted while the sidecar was accepting it
            self._ends.retire(
                sandbox.instance_id, sandbox.id, verdict=sandbox.verdict or SandboxVerdict.DELETED
            )
            return
        sandbox.started_at = claimed.state.get("claimed_at") or self._clock()
        self._backend.claimed(claimed.instance, sandbox.ownership(), ours=True)
        self._directory.running(sandbox, address=claimed.instance.address, token=claimed.token)
        self._ends.orphans.runs(sandbox)
        self._ran(sandbox)

    def _has_place(self, sandbox_id: SandboxId) -> None:
        if (reading := self._reading.pop(sandbox_id, None)) is not None:
            reading.set()

    async def _claim(
        self, sandbox: Sandbox, *, secrets: dict[str, str], ticket: Place | None, patient: bool
    ) -> Claimed:
        """Claim an instance. After its caller was answered PENDING, the create waits instead of failing."""
        values = secrets
        while True:
            try:
                if ticket is None:
                    values = await self._values.of(sandbox, secrets)
                    self._unread.pop(sandbox.id, None)
                    if not sandbox.live:
                        raise Abandoned(sandbox.id)
                    ticket = self._claimer.ticket(sandbox, patient=patient or sandbox.id in self._pending)
                    self._has_place(sandbox.id)
                return await self._claimer.claim(sandbox, secrets=values, ticket=ticket)
            except SecretsUnreadable as error:
                if not patient and sandbox.id not in self._pending:
                    raise
                self._unread[sandbox.id] = str(error)
                self._has_place(sandbox.id)  # it waits, whatever the queue is like
                await self._directory.changed(sandbox.id, timeout=error.retry_after, background=True)
                if not sandbox.live:
                    raise Abandoned(sandbox.id) from error
            except CannotStart:
                if not patient and sandbox.id not in self._pending:
                    raise
                ticket = self._patient_ticket(sandbox)

    def _patient_ticket(self, sandbox: Sandbox) -> Place:
        return self._claimer.ticket(sandbox, patient=True)

    async def _restore_into(self, sandbox: Sandbox, instance: Instance) -> None:
        """Restore the checkpoint's files into a claimed instance. Raises RestoreFailed."""
        try:
            if self._restore is None:
                raise RestoreFailed("this gateway has no checkpoints: set checkpoint_dir or checkpoint_s3")
            with stage("sandlot.restore"):
                await self._restore(sandbox, instance)
        except BaseException:  # any failure: else the sidecar would wait for files that never come
            self._ends.discard(instance, owner=sandbox.id)
            raise

    def _refuse(self, sandbox: Sandbox, refusal: Refusal, *, patient: bool) -> bool:
        """Refuse a create; return whether a sandbox remains."""
        # A caller that holds the create open gets a 422 or 503, and no sandbox remains. One that was answered PENDING has
        # the id: its sandbox must exist, and its end says the same.
        if not sandbox.live:  # it was deleted, and has a record
            return True
        loop = asyncio.get_running_loop()
        self._refusals[sandbox.id] = refusal
        loop.call_later(_REFUSAL_KEPT, self._refusals.pop, sandbox.id, None)
        text = f"{refusal.field}: {refusal}" if isinstance(refusal, BadRequestField) else str(refusal)
        if sandbox.id in self._pending:
            self._ends.record(sandbox, verdict=SandboxVerdict.START_FAILED, message=text)
            self._directory.release_key(sandbox)
            return True
        self._directory.drop(sandbox)
        self._backend.pending_create_ended(sandbox.id, verdict=SandboxVerdict.START_FAILED, message=text)
        sandbox.finish(SandboxVerdict.START_FAILED, at=self._clock(), message=text)
        self._ends.orphans.ended(sandbox.id)
        # A patient one is no new one, or another gateway's. One whose secrets were read has cost the API server's time,
        # and must be no way to read without a limit.
        if not patient and not self._values.reads(sandbox):
            self._refused(sandbox)
        return False

    async def close(self, *, timeout: float) -> int:
        """Wait up to `timeout` seconds, then cancel the rest; return their number."""
        return await self._tasks.close(timeout=timeout)
