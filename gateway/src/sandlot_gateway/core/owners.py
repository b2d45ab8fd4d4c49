"""Claims, pending creates and ends, as backends record them and gateways exchange them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from sandlot_contract.ids import SandboxId
from sandlot_contract.template import Template

from .slot import Loss


@dataclass(frozen=True, slots=True)
class Claim:
    """The owner of an instance, for the backend's claim record; `at` in Unix seconds."""

    sandbox_id: SandboxId
    tenant: str
    at: float
    labels: tuple[str, ...] = ()
    request: dict[str, Any] = field(default_factory=dict)  # as in PendingCreate
    generation: int = 1  # of the instance

    def recorded_end(self, loss: Loss) -> RecordedEnd:
        """Return the end of this claim's sandbox, for other gateways."""
        return RecordedEnd(
            self.sandbox_id,
            verdict=loss.verdict,
            message=loss.message,
            exit_code=loss.exit_code,
            of_pending_create=False,
            request=self.request,
        )


@dataclass(frozen=True, slots=True)
class PendingCreate:
    """A pending create: its caller has the sandbox's id, and it has no instance yet.

    `request` is the create request without fields that may hold a secret, because the backend's records are readable by
    others.
    """

    sandbox_id: SandboxId
    tenant: str
    template: Template
    labels: tuple[str, ...]
    request: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RecordedEnd:
    """The end of a sandbox, read from its record.

    `of_pending_create`: from the record of its pending create, so that no end of an instance follows. `request` as in
    PendingCreate, if the record has it: the sandbox may be unknown to this gateway. `at` in Unix seconds.
    """

    sandbox_id: SandboxId
    verdict: str
    message: str | None
    exit_code: int | None
    of_pending_create: bool
    request: dict[str, Any] | None = None
    at: float | None = None


@dataclass(frozen=True, slots=True)
class KeyQuestion:
    """Asks, before a gateway brings up `sandbox_id`, which sandbox has this tenant's idempotency key."""

    tenant: str
    key: str
    sandbox_id: SandboxId
    gateway: str  # the asking process's random id
    waits: bool = True  # a caller waits for it there


@dataclass(frozen=True, slots=True)
class KeyHolder:
    """The sandbox that has the key, with its end if it has ended."""

    sandbox_id: SandboxId
    verdict: str | None = None
    message: str | None = None
    exit_code: int | None = None
    ended_at: float | None = None


# In the answer of a gateway that starts: it knows no holder yet, and has claimed nothing.
STARTING: Mapping[str, bool] = MappingProxyType({"starting": True})


@dataclass(frozen=True, slots=True)
class KeyAnswer:
    """The answers of all gateways. `all_heard`: every other gateway has answered or is known to be dead.

    `searching`: they are not all heard, since what a dead one had claimed last is still looked for.
    With several holders the gateways have not agreed yet which one goes on.
    """

    holders: tuple[KeyHolder, ...]
    all_heard: bool
    searching: bool = False

    @property
    def holder(self) -> KeyHolder | None:
        """The holder to use: a live one if there is one."""
        return min(self.holders, key=lambda one: (one.verdict is not None, one.sandbox_id), default=None)
