"""A sandbox from its create request to its end: who waits, who is told, and what is cleaned up afterwards."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from sandlot_gateway.checkpoints.service import RestoreFailed
from sandlot_gateway.claims import (
    GIVEN_BACK,
    Abandoned,
    Claimed,
    Claimer,
    ClaimRefused,
    LostAtOnce,
    NoSidecar,
)
from sandlot_gateway.core.backend import Backend, Claim, Instance, KeyHolder
from sandlot_gateway.core.slots import Loss, Phase
from sandlot_gateway.core.supply_events import CannotStart, StartFailed
from sandlot_gateway.directory import Directory
from sandlot_gateway.keyed import KeyedCreates
from sandlot_gateway.keys import Tenant
from sandlot_gateway.orphans import Orphans
from sandlot_gateway.pending import PendingStore
from sandlot_gateway.retiring import Retirer
from sandlot_gateway.sandboxes import NotOurs, Sandbox, Spec, new_id, promised, recovered
from sandlot_gateway.sidecars import SidecarError, Sidecars, document
from sandlot_gateway.supply import Supply, Ticket
from sandlot_gateway.tasks import Tasks
from sandlot_gateway.tokens import Tokens

_log = logging.getLogger(__name__)


class QuotaReached(Exception):
    """The tenant has as many live sandboxes as it may."""


class BadRequestField(Exception):
    """The create cannot succeed as it was asked for; `field` is the name on the wire."""

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message)
        self.field = field


class ResetFailed(Exception):
    """`code`: no_overlay (nothing happened), unreachable (unknown), not_equal (the sandbox has ended)."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code


class Observer(Protocol):
    """Who counts; see control/counters.py."""

    def created(self, sandbox: Sandbox, *, seconds: float) -> None: ...

    def ended(self, sandbox: Sandbox) -> None: ...


# What a sidecar calls a field of the claim, and what the caller called it.
_CLAIM_FIELDS = {
    "env": "environment_vars",
    "timeout": "timeout_seconds",
    "idle_timeout": "idle_timeout_seconds",
}


# Ends that a gateway has decided; every other is of an instance, and of the claim that it had.
_DECIDED = frozenset({"deleted", "reset_failed", "start_failed"})
_FOLLOW_PAUSE = 1.0  # seconds between two looks whether the gateway that brings up a sandbox still does
DELETE_WAIT = 2.0  # seconds that a delete waits for sidecars which do not answer


class Lifecycle:
    """One per gateway. The work of a create belongs to this object, not to the request that asked for it.

    `orphan_grace` in seconds, see orphans.py. `ran` hears of every sandbox that got its instance.
    """

    def __init__(
        self,
        *,
        directory: Directory,
        supply: Supply,
        claimer: Claimer,
        sidecars: Sidecars,
        backend: Backend,
        tokens: Tokens,
        pending: PendingStore,
        observer: Observer,
        orphan_grace: float = 60.0,
        ran: Callable[[Sandbox], None] = lambda sandbox: None,
        restore: Callable[[Sandbox, Instance], Awaitable[None]] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.directory = directory
        self._supply = supply
        self._slots = supply.slots
        self._claimer = claimer
        self._sidecars = sidecars
        self._backend = backend
        self._tokens = tokens
        self._pending = pending
        self._observer = observer
        self._retirer = Retirer(backend=backend, sidecars=sidecars, supply=supply)
        self.orphans = Orphans(
            grace=orphan_grace, delete=lambda sandbox, why: self.delete(sandbox, message=why)
        )
        self._ran = ran
        self._restore = restore
        self._clock = clock
        self._secrets: dict[str, dict[str, str]] = {}  # of creates under way
        self._followed: dict[str, dict[str, str]] = {}  # the same of those that another gateway brings up
        self._asking: dict[str, asyncio.Event] = {}  # creates with a key, until it is known whose it is
        self._instead: dict[str, Sandbox] = {}  # what another gateway had made for the key of one of ours
        self.keyed = KeyedCreates(
            directory=directory,
            others=backend.others,
            works_on=lambda sandbox_id: sandbox_id in self._secrets,
        )
        self._settled = asyncio.Event()
        self._refusals: dict[str, BadRequestField | CannotStart] = {}
        self._unconfirmed: dict[str, Sandbox] = {}  # by instance: ran when the last gateway was seen
        self._tasks = Tasks()
        self._followers = Tasks()

    # Create.

    def create(self, spec: Spec, *, secrets: dict[str, str], tenant: Tenant) -> Sandbox:
        """Begin a sandbox, or find the one that this idempotency key made. Does not wait.

        Raises QuotaReached; when nothing warm fits, QueueFull if the line is full, CannotStart if no start can be.
        """
        if spec.key is not None:
            known = self.directory.by_key(tenant.name, spec.key)
            if known is not None:
                if known.live:
                    self.orphans.asked(known)
                self._follow(known, spec=spec, secrets=secrets)
                return known
        limit = tenant.max_sandboxes
        if limit is not None and self.directory.live_count(tenant.name) >= limit:
            raise QuotaReached(f"tenant {tenant.name!r} may have {limit} sandboxes at once")
        now = self._clock()
        sandbox = Sandbox(id=new_id(now), tenant=tenant.name, spec=spec, created_at=now, updated_at=now)
        asks_others = spec.key is not None and self.keyed.has_others
        ticket = self._supply.ticket(
            template=spec.template(),
            tenant=tenant.name,
            pool=spec.pool,
            wanted=sandbox.promise,
            at_once=not asks_others,
        )
        self.directory.add(sandbox)
        self.orphans.asked(sandbox)
        self._secrets[sandbox.id] = secrets
        if asks_others:
            self._asking[sandbox.id] = asyncio.Event()
            self._tasks.spawn(self._bring_up_keyed(sandbox, secrets=secrets, ticket=ticket))
        else:
            self._tasks.spawn(self._bring_up(sandbox, secrets=secrets, ticket=ticket))
        return sandbox

    async def wait(self, sandbox: Sandbox, *, timeout: float) -> Sandbox:
        """Up to `timeout` seconds for a PENDING sandbox to become something else. Raises BadRequestField, CannotStart.

        Another one, where another gateway had made it for the same key: nobody has been told of this one.
        """
        if (asking := self._asking.get(sandbox.id)) is not None:
            await asking.wait()
        sandbox = self._instead.get(sandbox.id, sandbox)
        await self.directory.changed(sandbox.id, timeout=timeout)
        refusal = self._refusals.get(sandbox.id)
        if refusal is not None:
            raise refusal
        secrets = self._secrets.get(sandbox.id, self._followed.get(sandbox.id))
        if sandbox.status == "PENDING" and secrets is not None:
            try:
                self._pending.save(sandbox, secrets=secrets)
            except OSError as error:
                _log.error("a pending create is in memory only: %s", error, extra={"sandbox": sandbox.id})
        return sandbox

    async def promise(self, sandbox: Sandbox) -> None:
        """Its caller is about to be told of it: other gateways should know it too, if it is PENDING."""
        if sandbox.status == "PENDING" and (sandbox.id in self._secrets or sandbox.id in self._followed):
            await self._backend.promise(sandbox.promise())

    def position(self, sandbox: Sandbox) -> int | None:
        return self._claimer.position(sandbox.id)

    async def _bring_up_keyed(self, sandbox: Sandbox, *, secrets: dict[str, str], ticket: Ticket) -> None:
        """Unless another gateway has one for its key, which stands in its place then."""
        holder = None
        try:
            try:
                holder = (await self.keyed.ask(sandbox)).holder
            except BaseException:
                ticket.give_back()
                raise
            if holder is not None:
                ticket.give_back()
                self._forget_create(sandbox.id)
                self._stand_in(sandbox, await self.keyed.agreed(sandbox, holder), secrets=secrets)
        finally:
            self._asking.pop(sandbox.id).set()
        if holder is None:
            ticket.begin()
            await self._bring_up(sandbox, secrets=secrets, ticket=ticket)

    def _stand_in(self, sandbox: Sandbox, holder: KeyHolder, *, secrets: dict[str, str]) -> None:
        self.directory.drop(sandbox)
        self.orphans.ended(sandbox.id)
        known = self.directory.get(holder.sandbox_id)
        if known is None:
            known = Sandbox(
                holder.sandbox_id,
                sandbox.tenant,
                sandbox.spec,
                created_at=sandbox.created_at,
                updated_at=sandbox.updated_at,
            )
            self.directory.add(known)
        if holder.verdict is not None:
            self._end(known, verdict=holder.verdict, message=holder.message, exit_code=holder.exit_code)
        if known.live:
            self.orphans.asked(known)
        self._instead[sandbox.id] = known
        asyncio.get_running_loop().call_later(30.0, self._instead.pop, sandbox.id, None)
        self._follow(known, spec=sandbox.spec, secrets=secrets)

    def _follow(self, sandbox: Sandbox, *, spec: Spec, secrets: dict[str, str]) -> None:
        """Another gateway brings it up; should that one die, this one does, whose caller has said all that it takes."""
        if (
            sandbox.status == "PENDING"
            and self.keyed.has_others
            and sandbox.id not in self._secrets
            and sandbox.id not in self._followed
        ):
            # What is known of it by another gateway's promise lacks what may hold a secret.
            sandbox.spec = msgspec.structs.replace(spec, name=sandbox.spec.name, labels=sandbox.spec.labels)
            self._followed[sandbox.id] = secrets
            self._followers.spawn(self._follow_up(sandbox))

    async def _follow_up(self, sandbox: Sandbox) -> None:
        try:
            while self._is_followed(sandbox):
                answer = await self.keyed.ask(sandbox)
                if not self._is_followed(sandbox):
                    return
                holder = answer.holder
                if holder is None and answer.all_heard:
                    self._take_over(sandbox, secrets=self._followed[sandbox.id])
                    return
                if holder is not None and holder.verdict is not None and holder.sandbox_id == sandbox.id:
                    self._end(
                        sandbox, verdict=holder.verdict, message=holder.message, exit_code=holder.exit_code
                    )
                    return
                self._backend.sought(sandbox.id)
                await self.directory.changed(sandbox.id, timeout=_FOLLOW_PAUSE)
        finally:
            self._followed.pop(sandbox.id, None)

    def _is_followed(self, sandbox: Sandbox) -> bool:
        return sandbox.status == "PENDING" and self.directory.get(sandbox.id) is sandbox

    def _take_over(self, sandbox: Sandbox, *, secrets: dict[str, str]) -> None:
        _log.warning(
            "the gateway that brought up a sandbox has gone: this one goes on", extra={"sandbox": sandbox.id}
        )
        self._secrets[sandbox.id] = secrets
        ticket = self._patient_ticket(sandbox)
        self._tasks.spawn(self._bring_up(sandbox, secrets=secrets, ticket=ticket))

    def _forget_create(self, sandbox_id: str) -> None:
        self._secrets.pop(sandbox_id, None)
        if not self._secrets:
            self._settled.set()

    async def _bring_up(self, sandbox: Sandbox, *, secrets: dict[str, str], ticket: Ticket) -> None:
        began = time.monotonic()
        try:
            claimed = await self._claim(sandbox, secrets=secrets, ticket=ticket)
            if sandbox.spec.checkpoint is not None and sandbox.live:
                await self._restore_into(sandbox, claimed.instance)
        except Abandoned:
            return
        except CannotStart as error:
            self._refuse(sandbox, error)
        except ClaimRefused as error:
            field = _CLAIM_FIELDS.get(error.field or "", error.field or "body")
            if field == "egress" and sandbox.spec.egress is not None:
                field = f"network_{sandbox.spec.egress.field}"
            self._refuse(sandbox, BadRequestField(str(error), field=field))
        except StartFailed as error:
            if error.field is not None:
                self._refuse(sandbox, BadRequestField(str(error), field=_wire_field(error.field)))
            else:
                self._end(sandbox, verdict=error.verdict, message=str(error))
        except (NoSidecar, RestoreFailed) as error:
            self._end(sandbox, verdict="start_failed", message=str(error))
        except LostAtOnce as error:
            loss = error.loss
            self._end(sandbox, verdict=loss.verdict, message=loss.message, exit_code=loss.exit_code)
        except asyncio.CancelledError:
            raise
        except Exception:
            _log.exception("a create failed in an unexpected way", extra={"sandbox": sandbox.id})
            self._end(sandbox, verdict="start_failed", message="internal error")
        else:
            if not sandbox.live:  # deleted while the sidecar was accepting it
                self._retire(sandbox.instance_id, sandbox.id, verdict=sandbox.verdict or "deleted")
                return
            sandbox.started_at = claimed.state.get("claimed_at") or self._clock()
            self._backend.claimed(claimed.instance, _claim_of(sandbox), ours=True)
            self.directory.running(sandbox, address=claimed.instance.address, token=claimed.token)
            self._ran(sandbox)
        finally:
            self._forget_create(sandbox.id)
            if sandbox.status != "PENDING":
                self._pending.remove(sandbox.id)
                self._observer.created(sandbox, seconds=time.monotonic() - began)

    async def _claim(self, sandbox: Sandbox, *, secrets: dict[str, str], ticket: Ticket) -> Claimed:
        """A caller that was answered PENDING is not refused any more: its sandbox waits until starts can be again."""
        while True:
            try:
                return await self._claimer.claim(sandbox, secrets=secrets, ticket=ticket)
            except CannotStart:
                if sandbox.id not in self._pending:
                    raise
                ticket = self._patient_ticket(sandbox)

    def _patient_ticket(self, sandbox: Sandbox) -> Ticket:
        return self._supply.ticket(
            template=sandbox.spec.template(),
            tenant=sandbox.tenant,
            pool=sandbox.spec.pool,
            wanted=sandbox.promise,
            again=True,
            patient=True,
        )

    async def _restore_into(self, sandbox: Sandbox, instance: Instance) -> None:
        """Its claim waits for the files: nothing has run in it yet. Raises RestoreFailed."""
        try:
            if self._restore is None:
                raise RestoreFailed("there is no directory of checkpoints")
            await self._restore(sandbox, instance)
        except BaseException:  # also a fault of ours: its sidecar would wait for files that never come
            self._retirer.discard(instance)
            raise

    def _refuse(self, sandbox: Sandbox, refusal: BadRequestField | CannotStart) -> None:
        # Whoever still holds the create open hears a 422 or 503, and no sandbox is left. A caller that was answered
        # PENDING knows the id: for it the sandbox has to exist, and its end tells the same.
        loop = asyncio.get_running_loop()
        self._refusals[sandbox.id] = refusal
        loop.call_later(30.0, self._refusals.pop, sandbox.id, None)
        text = f"{refusal.field}: {refusal}" if isinstance(refusal, BadRequestField) else str(refusal)
        if sandbox.id in self._pending:
            self._end(sandbox, verdict="start_failed", message=text)
            self.directory.release_key(sandbox)
        else:
            self.directory.drop(sandbox)
            self._backend.promise_ended(sandbox.id, verdict="start_failed", message=text)
            sandbox.finish("start_failed", at=self._clock(), message=text)
            self.orphans.ended(sandbox.id)

    # End.

    def delete(self, sandbox: Sandbox, *, verdict: str = "deleted", message: str | None = None) -> bool:
        """Record the end now, clean up behind the caller's back; False when it had ended before."""
        was_pending = sandbox.status == "PENDING"
        if not self._end(sandbox, verdict=verdict, message=message):
            return False
        if was_pending:
            self._claimer.cancel(sandbox.id)
        self._retire(sandbox.instance_id, sandbox.id, verdict=verdict)
        return True

    def _retire(self, instance_id: str | None, sandbox_id: str, *, verdict: str) -> None:
        slot = self._slots.end(instance_id, sandbox_id) if instance_id is not None else None
        if slot is not None:
            self._retirer.retire(slot, verdict=verdict)

    async def deleted_everywhere(self, *sandboxes: Sandbox) -> None:
        """Wait for the sidecars of the deleted, where another gateway would go on using one that it holds for alive."""
        if not self._backend.finds_all:
            instances = [sandbox.instance_id for sandbox in sandboxes if sandbox.instance_id is not None]
            await self._retirer.retired(instances, timeout=DELETE_WAIT)

    def gone(
        self,
        instance_id: str,
        *,
        verdict: str,
        message: str | None,
        exit_code: int | None = None,
        heard: bool = False,
    ) -> None:
        """The instance has ended by itself or died: record its sandbox's end, give its place to others.

        `heard`: its sidecar said so.
        """
        slot = self._supply.lost(instance_id, Loss(verdict, message, exit_code=exit_code, heard=heard))
        owner = slot.sandbox_id if slot is not None and slot.phase is Phase.OWNED else None
        sandbox = self.directory.get(owner) if owner is not None else None
        sandbox = sandbox or self._unconfirmed_again(instance_id)
        if sandbox is None or sandbox.instance_id != instance_id:
            pass
        elif verdict == GIVEN_BACK:
            self._unlearn(sandbox)
        else:
            self._end(sandbox, verdict=verdict, message=message, exit_code=exit_code, heard=heard)
        self._backend.ended(instance_id, verdict=verdict, message=message, exit_code=exit_code, heard=heard)
        if slot is None or slot.phase is not Phase.ENDING:
            self._retirer.destroy(instance_id)

    def _unlearn(self, sandbox: Sandbox) -> None:
        """The gateway that brings it up has not heard of the claim that was heard of here: it is still to come."""
        self.directory.drop(sandbox)
        self.orphans.ended(sandbox.id)

    def give_back(self, instance: Instance, sandbox_id: str) -> None:
        """An instance that this sandbox could not claim: nobody shall have it, unless somebody else has it already."""
        self._retirer.give_back(instance, sandbox_id)

    def discard(self, instance: Instance) -> None:
        """An instance that nobody shall have."""
        self._retirer.discard(instance)

    def over(
        self, sandbox_id: str, *, verdict: str, message: str | None, exit_code: int | None, promised: bool
    ) -> None:
        """The backend's record of it says so: another gateway was asked for its end, or its own gateway is lost.

        The end of a promise ends it whatever it has become since; that of an instance's record only where nobody
        has heard of the instance yet.
        """
        sandbox = self.directory.get(sandbox_id)
        if sandbox is None or (verdict == GIVEN_BACK and not promised):
            return
        if promised:
            self.delete(sandbox, verdict=verdict, message=message)
        elif sandbox.status == "PENDING" and sandbox_id not in self._secrets:
            self._end(sandbox, verdict=verdict, message=message, exit_code=exit_code)

    def over_elsewhere(self, sandbox_id: str) -> None:
        """Its slot is at a later generation: another gateway was asked to end it, and has reset the slot."""
        sandbox = self.directory.get(sandbox_id)
        if sandbox is not None:
            self._end(sandbox, verdict="deleted", message="it was ended by another gateway")

    async def reset(self, sandbox: Sandbox) -> dict[str, Any]:
        """A proven reset that keeps the owner; the sidecar's answer. Raises ResetFailed."""
        instance = self._backend.instance(sandbox.instance_id or "")
        if instance is None or sandbox.status != "RUNNING":
            raise ResetFailed("the sandbox is not running", code="not_running")
        try:
            answer = await self._sidecars.reset(instance)
        except SidecarError as error:
            raise ResetFailed(str(error), code="unreachable") from error
        told = document(answer)
        if answer.status != 200:
            raise ResetFailed(str(told.get("message") or told.get("error")), code=str(told.get("error")))
        if not told.get("equal"):
            why = f"the reset could not be proven equal to fresh: {_differences(told)}"
            _log.warning("sandbox %s: %s", sandbox.id, why)
            self.delete(sandbox, verdict="reset_failed", message=why)
            raise ResetFailed(why, code="not_equal")
        sandbox.updated_at = self._clock()
        return told

    def _end(
        self,
        sandbox: Sandbox,
        *,
        verdict: str,
        message: str | None,
        exit_code: int | None = None,
        heard: bool = False,
    ) -> bool:
        if not self.directory.end(sandbox, verdict=verdict, message=message, exit_code=exit_code):
            return False
        self.orphans.ended(sandbox.id)
        self._pending.remove(sandbox.id)
        self._observer.ended(sandbox)
        if sandbox.instance_id is not None:
            self._backend.ended(
                sandbox.instance_id, verdict=verdict, message=message, exit_code=exit_code, heard=heard
            )
        else:
            self._backend.promise_ended(sandbox.id, verdict=verdict, message=message)
        _log.info("a sandbox ended", extra={"sandbox": sandbox.id, "verdict": verdict, "why": message})
        return True

    # Recovery: what sidecars and the disk tell after a restart.

    def record(self, instance: Instance, state: dict[str, Any]) -> None:
        """Its sidecar tells of an owner, whoever made the claim: the backend's record of it may be missing."""
        if not isinstance(state.get("sandbox_id"), str):
            return
        try:
            self._backend.claimed(instance, _claim_of(recovered(state, now=self._clock())), ours=False)
        except NotOurs:
            return  # `adopt` says so

    def adopt(self, instance: Instance, state: dict[str, Any]) -> None:
        """A claimed sidecar: know its sandbox (again), or end it when its sandbox has ended."""
        if state.get("restoring"):
            return  # the gateway that made the claim brings its files; should it be dead, the sidecar ends itself
        try:
            sandbox = recovered(state, now=self._clock())
        except NotOurs as error:
            _log.warning("a claim cannot be read: %s", error, extra={"instance": instance.id})
            self.discard(instance)
            return
        known = self.directory.get(sandbox.id)
        if known is not None:
            if known.id in self._secrets or (known.instance_id == instance.id and known.status == "RUNNING"):
                return
            if known.status != "PENDING" and (
                known.asked_at >= sandbox.asked_at or known.verdict in _DECIDED
            ):
                # Also where another claim of it came later: its gateway died before it could give this one back.
                self._retire(instance.id, sandbox.id, verdict=known.verdict or GIVEN_BACK)
                return
            if not known.live:
                # What has ended was the instance of a claim that its gateway has not heard of; here it has another.
                self.directory.drop(known)
                known = None
        token = self._tokens.sandbox(instance.id, sandbox.generation, sandbox.id)
        self._unconfirmed.pop(instance.id, None)
        if known is None:
            self.directory.add(sandbox)
        else:
            # Promised by another gateway, or claimed there a second time. It stays the same object: somebody may wait.
            for name in Sandbox.__struct_fields__:
                setattr(known, name, getattr(sandbox, name))
            sandbox = known
        self.directory.running(sandbox, address=instance.address, token=token)
        self._pending.remove(sandbox.id)

    def promised_elsewhere(self, sandbox_id: str, request: dict[str, Any]) -> None:
        """Another gateway has told a caller of it: it can be asked for here, and runs once its sidecar says so."""
        if self.directory.get(sandbox_id) is not None:
            return
        try:
            self.directory.add(promised(sandbox_id, request, now=self._clock()))
        except NotOurs as error:
            _log.warning("a pending create cannot be read: %s", error, extra={"sandbox": sandbox_id})

    def ended_elsewhere(
        self,
        sandbox_id: str,
        request: dict[str, Any],
        *,
        verdict: str,
        message: str | None,
        exit_code: int | None,
        at: float | None,
    ) -> None:
        """Another gateway's, that ended before it was heard of here: its caller asks any of them what became of it."""
        try:
            sandbox = promised(sandbox_id, request, now=self._clock())
        except NotOurs as error:
            _log.warning("an ended sandbox cannot be read: %s", error, extra={"sandbox": sandbox_id})
            return
        sandbox.spec.key = None  # what came of a key is told by the gateways that saw it live
        sandbox.finish(verdict, at=at or self._clock(), message=message, exit_code=exit_code)
        self.directory.add(sandbox)

    def expect(self, sandbox: Sandbox) -> None:
        """It ran when the last gateway was there; its sidecar has to say so before it does again."""
        if sandbox.instance_id is not None:
            self._unconfirmed[sandbox.instance_id] = sandbox

    def _unconfirmed_again(self, instance_id: str) -> Sandbox | None:
        sandbox = self._unconfirmed.pop(instance_id, None)
        if sandbox is None or self.directory.get(sandbox.id) is not None:
            return None
        self.directory.add(sandbox)
        return sandbox

    def resume(self) -> None:
        """Recovery is over: go on with pending creates, and give those whose sidecar is gone their verdict."""
        for instance_id in list(self._unconfirmed) if self._backend.finds_all else ():
            sandbox = self._unconfirmed_again(instance_id)
            if sandbox is not None:
                text = "its sidecar was gone when the gateway came back"
                self._end(sandbox, verdict="sidecar_lost", message=text)
        for sandbox, secrets in self._pending.load():
            known = self.directory.get(sandbox.id)
            if known is not None and known.status != "PENDING":
                self._pending.remove(sandbox.id)
                continue
            if known is not None:
                self.directory.drop(known)  # as its promise tells it, without the secrets
            self.directory.add(sandbox)
            self._tasks.spawn(self._backend.promise(sandbox.promise()))
            if sandbox.spec.key is not None and self.keyed.has_others:
                self._follow(
                    sandbox, spec=sandbox.spec, secrets=secrets
                )  # another gateway may have gone on with it
                continue
            self._secrets[sandbox.id] = secrets
            ticket = self._patient_ticket(sandbox)
            self._tasks.spawn(self._bring_up(sandbox, secrets=secrets, ticket=ticket))

    async def settled(self, *, timeout: float) -> None:
        """Until every create has its instance or its end, `timeout` seconds at most."""
        self._settled.clear()
        if not self._secrets:
            return
        try:
            async with asyncio.timeout(timeout):
                await self._settled.wait()
        except TimeoutError:
            _log.warning("%d pending creates are given up", len(self._secrets))

    async def close(self, *, timeout: float = 10.0) -> None:
        """Wait up to `timeout` seconds for cleanups, then cancel what is left."""
        self.orphans.close()
        await self._followers.close()
        await self._tasks.close(timeout=timeout)
        await self._retirer.close(timeout=timeout)


def _differences(told: dict[str, Any]) -> str:
    """What a reset's answer names; all of the proof from a sidecar that names nothing."""
    proof = told.get("proof")
    found = proof.get("differences") if isinstance(proof, dict) else None
    return "; ".join(map(str, found)) if isinstance(found, list) and found else str(proof)


def _claim_of(sandbox: Sandbox) -> Claim:
    at = sandbox.started_at or sandbox.created_at
    labels = tuple(sandbox.spec.labels)
    return Claim(sandbox.id, sandbox.tenant, at=at, labels=labels, request=sandbox.request())


_BACKEND_FIELDS = {"image": "docker_image", "cpu": "cpu_cores", "memory": "memory_gb", "disk": "disk_size_gb"}


def _wire_field(name: str) -> str:
    return _BACKEND_FIELDS.get(name, name)
