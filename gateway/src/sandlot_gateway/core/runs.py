"""Decides on the leases of training runs: who holds one, when it is lost, and which sandboxes end with it.

Plain data without clock or I/O. Times are Unix seconds by the clock of the store.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NewType, Protocol

import msgspec
from sandlot_contract.verdicts import SandboxVerdict

RunId = NewType("RunId", str)
RunKey = tuple[str, RunId]  # with its tenant

UNKNOWN_SECONDS = 60.0  # that a sandbox's run may be unknown: another gateway may have just begun it


class RunState(StrEnum):
    """LOST: no holder renewed it for its grace. ENDED: its holder ended it."""

    ACTIVE = "ACTIVE"
    LOST = "LOST"
    ENDED = "ENDED"


class RunRefusal(StrEnum):
    HELD = "run_held"
    TAKEN_OVER = "run_taken_over"
    LOST = "run_lost"
    ENDED = "run_ended"


class RunRefused(Exception):
    """The run's state does not allow it; the text names the run, and says what to do."""

    def __init__(self, code: RunRefusal, message: str) -> None:
        super().__init__(message)
        self.code = code


class RunUnknown(Exception):
    """The tenant has no run of this name."""


class RunRequest(msgspec.Struct, frozen=True):
    """What a holder asks for. `holder`: text that tells holders apart; the same one repeats its own request."""

    holder: str
    grace: float  # seconds
    name: str | None = None
    metadata: dict[str, str] = {}
    take_over: bool = False  # from a holder whose lease is not over
    end_sandboxes: bool = False  # those of earlier holders
    weight: int = 1  # by which its creates take turns with those of the tenant's other runs of its priority
    priority: int = 0  # those of a higher one have all turns of the tenant


class Lease(msgspec.Struct, frozen=True, omit_defaults=True):
    """The lease of a run. Each holder has an epoch of its own; sandboxes of an epoch before `floor` end."""

    tenant: str
    id: RunId
    epoch: int
    floor: int
    holder: str
    grace: float
    created_at: float  # of its first holder
    began_at: float  # of this holder
    renewed_at: float
    name: str | None = None
    metadata: dict[str, str] = {}
    state: RunState = RunState.ACTIVE
    finished_at: float | None = None
    weight: int = 1
    priority: int = 0

    @property
    def active(self) -> bool:
        return self.state is RunState.ACTIVE


def begun(lease: Lease | None, asked: RunRequest, *, tenant: str, run_id: RunId, now: float) -> Lease:
    """Return the lease of a holder that begins, resumes or takes over a run. Raises RunRefused.

    A holder that repeats its request keeps its epoch, so that a retry is no takeover; weight and priority are those of the last one.
    """
    if lease is not None and lease.active:
        if lease.holder == asked.holder:
            return msgspec.structs.replace(_renewed(lease, now), weight=asked.weight, priority=asked.priority)
        if not asked.take_over:
            silent = max(0.0, now - lease.renewed_at)
            raise RunRefused(
                RunRefusal.HELD,
                f"run {run_id} has a holder, {lease.holder}, which renewed it {silent:.0f} s ago: join it with its "
                f"epoch {lease.epoch}, take it over (take_over), or wait until it is lost after {lease.grace:g} s",
            )
    # Of the clock, so that a run whose lease was forgotten repeats no epoch that an old holder may still have.
    epoch = max(int(now), lease.epoch + 1 if lease is not None else 1)
    continued = lease is not None and lease.active and not asked.end_sandboxes
    return Lease(
        tenant=tenant,
        id=run_id,
        epoch=epoch,
        floor=lease.floor if lease is not None and continued else epoch,
        holder=asked.holder,
        grace=asked.grace,
        created_at=lease.created_at if lease is not None else now,
        began_at=now,
        renewed_at=now,
        name=asked.name,
        metadata=asked.metadata,
        weight=asked.weight,
        priority=asked.priority,
    )


def renewed(lease: Lease, epoch: int, *, now: float) -> Lease:
    """Return the lease renewed by a process of this epoch. Raises RunRefused."""
    check(lease, epoch)
    return _renewed(lease, now)


def heard(lease: Lease, epoch: int, *, at: float) -> Lease:
    """Return the lease with a renewal that a gateway heard earlier, and that may have come too late to count."""
    return _renewed(lease, at) if lease.active and lease.epoch == epoch else lease


def ended(lease: Lease, epoch: int | None, *, now: float) -> Lease:
    """Return the lease ended by this epoch, or by the tenant (None). One that is over stays as it is. Raises RunRefused."""
    if epoch is not None and epoch != lease.epoch:
        raise _taken_over(lease, epoch)
    return _finished(lease, RunState.ENDED, now) if lease.active else lease


def expired(lease: Lease, *, now: float, listening_since: float) -> Lease:
    """Return the lease, lost if it is. Silence counts only while renewals could be heard and read."""
    if lease.active and now > max(lease.renewed_at, listening_since) + lease.grace:
        return _finished(lease, RunState.LOST, now)
    return lease


def forgotten(lease: Lease, *, now: float, keep: float) -> bool:
    """Return whether a lease that is over has been shown for long enough."""
    return lease.finished_at is not None and now > lease.finished_at + keep


def check(lease: Lease, epoch: int | None) -> None:
    """Raise RunRefused unless the run is active, and of this epoch if there is one."""
    if epoch is not None and epoch != lease.epoch:
        raise _taken_over(lease, epoch)
    if lease.state is RunState.LOST:
        raise RunRefused(
            RunRefusal.LOST,
            f"run {lease.id} is lost: it was not renewed for {lease.grace:g} s, and its sandboxes have ended; "
            "begin it again to resume it",
        )
    if lease.state is RunState.ENDED:
        raise RunRefused(
            RunRefusal.ENDED, f"run {lease.id} has ended, with its sandboxes; begin it again to resume it"
        )


def end_of(lease: Lease, epoch: int) -> tuple[SandboxVerdict, str] | None:
    """Return verdict and message of a sandbox of this epoch that ends by the state of its run; None if it does not."""
    if epoch > lease.epoch:
        return None  # the lease is older than the sandbox: another gateway has changed it since
    if epoch < lease.floor:
        return (
            SandboxVerdict.RUN_LOST,
            f"another holder has taken run {lease.id} over without its sandboxes",
        )
    if lease.state is RunState.LOST:
        return SandboxVerdict.RUN_LOST, f"run {lease.id} was not renewed for {lease.grace:g} s"
    if lease.state is RunState.ENDED:
        return SandboxVerdict.DELETED, f"run {lease.id} was ended"
    return None


def _renewed(lease: Lease, at: float) -> Lease:
    return msgspec.structs.replace(lease, renewed_at=max(lease.renewed_at, at))


def _finished(lease: Lease, state: RunState, now: float) -> Lease:
    return msgspec.structs.replace(lease, state=state, finished_at=now)


def _taken_over(lease: Lease, epoch: int) -> RunRefused:
    return RunRefused(
        RunRefusal.TAKEN_OVER,
        f"run {lease.id} has another holder than that of epoch {epoch}: {lease.holder}, of epoch {lease.epoch}; "
        "stop this one, or take the run over again",
    )


Change = Callable[[Lease | None], Lease | None]


class RunStore(Protocol):
    """Keeps the leases of all tenants, one fact for all gateways. All coroutines may raise BackendError."""

    def now(self) -> float:
        """Return Unix seconds by the clock that all gateways share."""
        ...

    async def all(self, *, answered: Callable[[], object] = lambda: None) -> list[Lease]:
        """Return all leases that can be read. What they say may be as old as a second.

        `answered` is called after each answer of the store, of which a long list takes several.
        """
        ...

    async def find(self, tenant: str, run_id: RunId) -> Lease | None:
        """Return a lease as it is now. Raises Unavailable for one that this gateway cannot read."""
        ...

    async def change(self, tenant: str, run_id: RunId, change: Change) -> Lease | None:
        """Replace a lease by what `change` makes of it (None: remove it), and return that.

        No other change comes between; `change` may be called again. What it raises leaves the lease as it is.
        """
        ...
