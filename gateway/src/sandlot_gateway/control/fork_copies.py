"""The copy that forks begin with: a checkpoint of one moment for all forks of a key, whichever gateways bring them up."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable

from sandlot_contract.statuses import Status

from sandlot_gateway.checkpoints.checkpoint import Checkpoint, State
from sandlot_gateway.checkpoints.errors import StoreError
from sandlot_gateway.checkpoints.temporary import Use
from sandlot_gateway.control.checkpoints import begin_checkpoint, checkpoints_of
from sandlot_gateway.control.errors import ApiError, store_problem
from sandlot_gateway.control.services import Services
from sandlot_gateway.sandboxes import Sandbox

_LASTS_LONGER = 120.0  # seconds: the checkpoint than the group's deadline


def begun_forks(tenant: str, keys: Iterable[str], *, have: Services) -> list[Sandbox]:
    """Return the live forks with these keys that this gateway knows."""
    found = (have.directory.by_key(tenant, key) for key in keys)
    return [one for one in found if one is not None and one.live]


async def copy_of(tenant: str, checkpoint_id: str, *, have: Services) -> Checkpoint | None:
    """Return the copy that an earlier or another request of this key has begun."""
    found = await checkpoints_of(have).get(tenant, checkpoint_id)
    return found if found is not None and found.state is not State.FAILED else None


async def copied(
    sandbox: Sandbox,
    checkpoint_id: str,
    *,
    use: Use,
    keys: Collection[str],
    deadline: float,
    have: Services,
) -> float:
    """Begin the copy, or use the one that there is; return for how many seconds the forks may use it. Raises ApiError."""
    lasts = deadline + _LASTS_LONGER
    async with use.lock:
        for is_last in (False, True):
            found = await copy_of(sandbox.tenant, checkpoint_id, have=have)
            if found is not None and (left := await _left(found, use, deadline=deadline, have=have)) > 0:
                return left
            begun = begun_forks(sandbox.tenant, keys, have=have)
            if len(begun) == len(keys):
                return deadline  # another request of the key has begun all meanwhile: none needs a copy
            _check_moment(begun)
            try:
                use.own = await begin_checkpoint(sandbox, have, checkpoint_id=checkpoint_id, lasts=lasts)
            except ApiError as error:
                if error.status != 409:
                    raise
                if sandbox.status is not Status.RUNNING:
                    raise  # a later try cannot succeed
                if is_last:
                    text = f"the sandbox's files cannot be copied now: {error.detail}"
                    raise ApiError(503, text, headers={"retry-after": "1"}) from error
            else:
                break
    return deadline


async def _left(found: Checkpoint, use: Use, *, deadline: float, have: Services) -> float:
    """Return for how many seconds a group may use a copy, which stays as long as that. Raises ApiError."""
    own = use.own
    if own is None or own.created_at != found.created_at:
        # Its own gateway may be writing it. What it lasts longer than the first group is for restores that have begun.
        return min(deadline, (found.expires_at or 0.0) - _LASTS_LONGER - time.time())
    try:
        await checkpoints_of(have).extend(own, lasts=deadline + _LASTS_LONGER)
    except StoreError as error:
        raise store_problem(error) from error
    except OSError as error:
        raise ApiError(
            507, f"cannot keep the copy: {error.strerror}; free space or ask the operator"
        ) from error
    return deadline


def _check_moment(begun: Iterable[Sandbox]) -> None:
    """Refuse a second copy for forks of which some run with the files of the first. Raises ApiError."""
    running = next((one for one in begun if one.status is Status.RUNNING), None)
    if running is not None:
        raise ApiError(
            409,
            f"idempotency_key: the copy that {running.id} of these forks began with is gone, and others would have later"
            " files: delete the group, or use another key",
            field="idempotency_key",
        )
