"""What a control call's route learns about it for its audit record, beyond what its method and path say."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(slots=True)
class Call:
    """One control call; routes change it with `note`."""

    id: str | None = None  # of the resource; a create learns it late
    credential: str | None = (
        None  # an id that opens the resource, so that only its fingerprint may be written
    )
    sandbox: str | None = None
    run: str | None = None
    deleted: Sequence[str] | None = None  # the ids of all that one call deleted
    made: Sequence[str] | None = None  # the ids of the sandboxes that one call made of another
    error: str | None = None  # a word that says more than the status
    left: bool = False  # its caller, before the answer


_current: ContextVar[Call | None] = ContextVar("audited_call", default=None)


def begin(call: Call) -> None:
    """Make this the call of the running task."""
    _current.set(call)


def note(
    *,
    id: str | None = None,
    credential: str | None = None,
    sandbox: str | None = None,
    run: str | None = None,
    deleted: Sequence[str] | None = None,
    made: Sequence[str] | None = None,
    error: str | None = None,
    left: bool = False,
) -> None:
    """Add what is given to the running task's call, if calls are audited."""
    call = _current.get()
    if call is None:
        return
    call.id = id or call.id
    call.credential = credential or call.credential
    call.sandbox = sandbox or call.sandbox
    call.run = run or call.run
    call.deleted = call.deleted if deleted is None else deleted
    call.made = call.made if made is None else made
    call.error = error or call.error
    call.left = left or call.left
