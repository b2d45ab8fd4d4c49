"""Who owns an instance, or is to have one, as backends record it and gateways tell each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sandlot_contract.ids import SandboxId
from sandlot_contract.template import Template


@dataclass(frozen=True, slots=True)
class Claim:
    """Who owns an instance, for a backend that keeps a record of it; `at` in Unix seconds."""

    sandbox_id: SandboxId
    tenant: str
    at: float
    labels: tuple[str, ...] = ()
    request: dict[str, Any] = field(default_factory=dict)  # as a Promise's


@dataclass(frozen=True, slots=True)
class Promise:
    """A sandbox that a caller knows before it has an instance.

    `request` tells what was asked for, without what may hold a secret: whoever may read the backend's records reads it.
    """

    sandbox_id: SandboxId
    tenant: str
    template: Template
    labels: tuple[str, ...]
    request: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RecordedEnd:
    """The end of a sandbox as its record says it.

    `promised`: the record of its promise, so that no instance's end follows. `request` as a Promise's, if the record has
    it: another gateway's may have ended unheard of here. `at` in Unix seconds.
    """

    sandbox_id: SandboxId
    verdict: str
    message: str | None
    exit_code: int | None
    promised: bool
    request: dict[str, Any] | None = None
    at: float | None = None


@dataclass(frozen=True, slots=True)
class KeyQuestion:
    """Which sandbox has this tenant's idempotency key? Asked by a gateway that would bring up `sandbox_id` for it."""

    tenant: str
    key: str
    sandbox_id: SandboxId
    gateway: str  # of the one that asks: another for each process


@dataclass(frozen=True, slots=True)
class KeyHolder:
    """The sandbox that has the key; with its end, if it has ended."""

    sandbox_id: SandboxId
    verdict: str | None = None
    message: str | None = None
    exit_code: int | None = None
    ended_at: float | None = None


@dataclass(frozen=True, slots=True)
class KeyAnswer:
    """`all_heard`: every other gateway has answered or is known to be dead.

    Several holders: those that told of them have not agreed yet which one goes on.
    """

    holders: tuple[KeyHolder, ...]
    all_heard: bool

    @property
    def holder(self) -> KeyHolder | None:
        """One that has ended only where none lives."""
        return min(self.holders, key=lambda one: (one.verdict is not None, one.sandbox_id), default=None)
