"""The rules of all stores: what expires when, what can be replaced or restored, how many a tenant may have."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sandlot_contract.ids import SandboxId

from sandlot_gateway.checkpoints.checkpoint import Checkpoint, State
from sandlot_gateway.checkpoints.errors import Busy, NotRestorable

_ID = re.compile(r"cp-[0-9a-f]{24}\Z")
_FAILED_KEPT = 100  # per tenant, for the tenant to read; a document is some 500 bytes
# Of revoked ones, whose document is the only sign of why: seconds, longer than any create takes, and per tenant meanwhile.
_REVOKED_KEEP = 120.0
_REVOKED_KEPT = 1000
_NEWEST = 60.0  # seconds for which a checkpoint of the same sandbox is not replaced

_MOST_BASES = 4  # each costs the read of its manifest

ABANDONED_AFTER = 3600.0  # seconds, for files without a document
STOPPED = "the gateway stopped while it was being written"


class StoreFull(Exception):
    """Raised when a limit is reached; the message names it and the remedy."""


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """Limits; bytes are those of archives. `tenant_count` ignores FAILED checkpoints, kept for `failed_keep` seconds."""

    total_bytes: int = 20 << 30
    tenant_bytes: Callable[[str], int | None] = lambda tenant: 10 << 30  # by tenant; None: as many as all
    tenant_count: int = 1000
    failed_keep: float = 3600.0
    keep: Callable[[str], float | None] = lambda tenant: (
        None
    )  # seconds after completion, by tenant; None: for ever
    # Tenant and bytes of each copy that counts like an archive.
    copies: Callable[[], Iterable[tuple[str, int]]] = tuple

    def complete(self, checkpoint: Checkpoint, *, at: float) -> None:
        """Let a checkpoint that was completed at a time expire as its tenant's quota says."""
        keep = self.keep(checkpoint.tenant)
        if keep is not None and checkpoint.expires_at is None:
            checkpoint.expires_at, checkpoint.by_quota = at + keep, True

    def is_over(self, checkpoint: Checkpoint) -> bool:
        """Return whether a checkpoint has had its time."""
        now = time.time()
        if checkpoint.expires_at is not None and checkpoint.expires_at <= now:
            return True
        keep = max(self.failed_keep, _REVOKED_KEEP if checkpoint.revoked else 0.0)
        return checkpoint.state is State.FAILED and checkpoint.updated_at + keep <= now


def new_id() -> str:
    return f"cp-{secrets.token_hex(12)}"


def is_id(text: str) -> bool:
    return _ID.match(text) is not None


def oldest_first(found: list[Checkpoint]) -> list[Checkpoint]:
    return sorted(found, key=lambda one: (one.created_at, one.id))


def soonest_expiry(found: Iterable[Checkpoint]) -> float | None:
    """Return when the next of these expires; None if none does."""
    return min((one.expires_at for one in found if one.expires_at is not None), default=None)


def too_many_failed(own: Sequence[Checkpoint]) -> list[Checkpoint]:
    """Return which of a tenant's checkpoints, oldest first, to delete before there is another."""
    failed = [one for one in own if one.state is State.FAILED]
    since = time.time() - _REVOKED_KEEP
    signs = [one for one in failed if one.revoked and one.updated_at > since]
    others = [one for one in failed if not (one.revoked and one.updated_at > since)]
    return [
        one
        for found, most in ((others, _FAILED_KEPT), (signs, _REVOKED_KEPT))
        for one in found[: max(0, len(found) + 1 - most)]
    ]


def check_count(tenant: str, own: Sequence[Checkpoint], *, deleted: int, limits: StoreLimits) -> str:
    """Check that a tenant may have one more; return what to say of its oldest checkpoint. Raises StoreFull."""
    kept = [one for one in own if one.state is not State.FAILED]
    oldest = f"; your oldest is {kept[0].id} of sandbox {kept[0].sandbox_id}" if kept else ""
    count = len(kept) + deleted
    if count >= limits.tenant_count:
        raise StoreFull(
            f"tenant {tenant!r} has {count} checkpoints, the limit is {limits.tenant_count}"
            f" (checkpoint_tenant_count): delete some{oldest}"
        )
    return oldest


def check_replaceable(earlier: Checkpoint, *, sandbox_id: SandboxId) -> None:
    """Check that one of this sandbox may replace an earlier checkpoint. Raises Busy."""
    # Its maker ends the sandbox next, and then has nothing else.
    age = time.time() - earlier.updated_at
    if earlier.state is State.DURABLE and earlier.sandbox_id == sandbox_id and age < _NEWEST:
        raise Busy(f"checkpoint {earlier.id} of this sandbox is new; wait {_NEWEST:g} s")
    if earlier.state is State.PENDING:
        raise Busy(f"checkpoint {earlier.id} is being written; wait until it is DURABLE or FAILED")


def check_restorable(found: Checkpoint | None, checkpoint_id: str) -> Checkpoint:
    """Return the checkpoint that was found by an id, if it can be restored. Raises NotRestorable."""
    if found is None:
        raise NotRestorable(f"no checkpoint {checkpoint_id!r}"[:200], missing=True)
    if found.state is not State.DURABLE:
        why = f" ({found.error})" if found.error else ""
        text = f"checkpoint {found.id} is {found.state}{why}; only a DURABLE one can be restored"
        raise NotRestorable(text, missing=False)
    return found


def pack_name(checkpoint_id: str) -> str:
    """Return a name for a pack that no other has had: a later checkpoint may have the same id."""
    return f"{checkpoint_id}-{secrets.token_hex(8)}"


def bases(checkpoint: Checkpoint, own: Iterable[Checkpoint]) -> list[Checkpoint]:
    """Return those of a tenant's checkpoints that most likely have chunks of a new one, the likeliest first."""

    def likeness(one: Checkpoint) -> tuple[bool, bool, bool, float]:
        return (
            one.id in (checkpoint.parent_id, checkpoint.origin_id),
            one.sandbox_id == checkpoint.sandbox_id,
            one.origin_id is not None and one.origin_id == checkpoint.origin_id,
            one.updated_at,
        )

    usable = [
        one
        for one in own
        if one.state is State.DURABLE
        and one.packed
        and not one.shared
        and one.docker_image == checkpoint.docker_image
        and _is_compressed(one) == _is_compressed(checkpoint)  # else no chunk is equal
    ]
    return sorted(usable, key=likeness, reverse=True)[:_MOST_BASES]


def _is_compressed(checkpoint: Checkpoint) -> bool:
    return checkpoint.expires_at is None or checkpoint.by_quota
