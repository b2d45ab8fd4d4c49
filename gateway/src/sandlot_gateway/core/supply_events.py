"""Events and effects of core/supply.py: what happens to starts and waiting creates, and what to do about it.

An ask is a create that needs an instance; a start is one call of the backend's `launch`. The engine numbers the asks,
the core numbers the starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

from sandlot_contract.ids import InstanceId
from sandlot_contract.template import Template
from sandlot_contract.verdicts import SandboxVerdict

from sandlot_gateway.core.instances import Instance
from sandlot_gateway.core.slot import Hold
from sandlot_gateway.core.waiting import Full

# Verdicts of owned sandboxes only: an instance that ended with one of them did start.
_OF_OWNED: frozenset[str] = frozenset(
    {
        SandboxVerdict.DELETED,
        SandboxVerdict.DEADLINE,
        SandboxVerdict.IDLE,
        SandboxVerdict.EXITED,
        SandboxVerdict.RESET_FAILED,
        SandboxVerdict.RUN_LOST,
        SandboxVerdict.INIT_KILLED,
        SandboxVerdict.GIVEN_BACK,
    }
)

AskId = NewType("AskId", int)
StartId = NewType("StartId", int)


class QueueFull(Exception):
    """The queue is full; `retry_after` in seconds is an estimate from recent starts."""

    def __init__(self, message: str, *, position: int, retry_after: float) -> None:
        super().__init__(message)
        self.position = position
        self.retry_after = retry_after


def queue_full(full: Full, *, retry_after: float) -> QueueFull:
    """Return the refusal of a create of a run that has its share of the full queue."""
    whose = f"its run {full.run!r}" if full.run else "its creates without a run"
    return QueueFull(
        f"the queue for new sandboxes is full ({full.waiting} waiting, max_waiting is {full.limit}): tenant "
        f"{full.tenant!r} has {full.of_tenant} of them, {whose} {full.of_run}, and may have {full.share} until there "
        "is room; try again after Retry-After, or create fewer at a time",
        position=full.waiting + 1,
        retry_after=retry_after,
    )


class CannotStart(Exception):
    """No warm instance fits, and the backend cannot start one now; `retry_after` in seconds."""

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class StartFailed(Exception):
    """No instance could be started. `verdict` is the sandbox's; `field` names the request field at fault, if any."""

    def __init__(
        self,
        message: str,
        *,
        verdict: str = SandboxVerdict.START_FAILED,
        error_type: str,
        field: str | None = None,
    ) -> None:
        super().__init__(message)
        self.verdict = verdict
        self.error_type = error_type
        self.field = field


# Events.


@dataclass(frozen=True, slots=True)
class Asked:
    """A create needs an instance.

    `again`: it lost its instance to another claim and goes to the front, even of a full queue.
    `patient`: its caller has its id already, so it waits, in turn, while the queue is full or the backend cannot start
    anything. `at_once`: if False, no start begins for it before the next event. `avoid`: nodes that could not prepare
    its image, which come last.
    `lays_image`: only an instance that takes any image will do. `run`: the tenant's run that it is of, if any.
    """

    ask: AskId
    template: Template
    tenant: str
    pool: str | None = None
    again: bool = False
    patient: bool = False
    at_once: bool = True
    avoid: frozenset[str] = frozenset()
    lays_image: bool = False
    run: str = ""


@dataclass(frozen=True, slots=True)
class AskedTogether:
    """Creates that need an instance each, at once and without waiting, or none at all."""

    asks: tuple[Asked, ...]


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A create gave up its place. If it was granted an instance already, it has to put that back itself."""

    ask: AskId


@dataclass(frozen=True, slots=True)
class Launched:
    """The backend has begun a start, whose instance may have reported before."""

    start: StartId
    instance_id: InstanceId


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    """The backend rejected a start for good."""

    start: StartId
    error: StartFailed


@dataclass(frozen=True, slots=True)
class LaunchRefused:
    """The backend cannot start anything for `retry_after` seconds. `refuse`: fail waiting creates with this message.

    `only_kind`: it cannot start more of this kind of template, because others use the GPUs.
    """

    start: StartId
    message: str
    retry_after: float
    refuse: bool
    only_kind: bool = False

    @property
    def error(self) -> CannotStart:
        return CannotStart(self.message, retry_after=self.retry_after)


@dataclass(frozen=True, slots=True)
class Offered:
    """An instance is ready without an owner; its slot is UNREPORTED until it is granted or waits.

    `awaits`: the image that its node prepares for a create which has given it back, until `CameBack`.
    """

    instance: Instance
    awaits: str | None = None


@dataclass(frozen=True, slots=True)
class CameBack:
    """A create no longer waits for the node of an instance that it has given back."""

    instance_id: InstanceId
    image: str


@dataclass(frozen=True, slots=True)
class Lost:
    """An instance ended or could not start."""

    instance_id: InstanceId
    verdict: str
    message: str

    @property
    def had_owner(self) -> bool:
        """Whether it did start and a sandbox owned it."""
        return self.verdict in _OF_OWNED


@dataclass(frozen=True, slots=True)
class Taken:
    """An instance has an owner, perhaps through another gateway: a create waiting for its start needs another."""

    instance_id: InstanceId


@dataclass(frozen=True, slots=True)
class Destroyed:
    """The backend has removed an instance after `Destroy`, or has failed to. `instance`: see `RoomMade`."""

    instance_id: InstanceId
    instance: Instance | None = None


@dataclass(frozen=True, slots=True)
class RoomMade:
    """Capacity was freed: a start that was rejected for lack of it may succeed now.

    `instance`: what had it, None if that is unknown.
    """

    instance: Instance | None = None


@dataclass(frozen=True, slots=True)
class Looked:
    """Time has passed, or the backend's pools have changed."""


Event = (
    Asked
    | AskedTogether
    | Withdrawn
    | Launched
    | LaunchFailed
    | LaunchRefused
    | Offered
    | CameBack
    | Lost
    | Taken
    | Destroyed
    | RoomMade
    | Looked
)


# Effects.


@dataclass(frozen=True, slots=True)
class Grant:
    """Give the ask a slot. `queued` and `start`: seconds it waited for a place and for the start."""

    ask: AskId
    hold: Hold
    pool_hit: bool
    queued: float
    start: float


@dataclass(frozen=True, slots=True)
class Refuse:
    """Fail the ask."""

    ask: AskId
    error: QueueFull | CannotStart | StartFailed


@dataclass(frozen=True, slots=True)
class Launch:
    """Call the backend's `launch` and report the result. `ask`: the create that it is meant for."""

    start: StartId
    template: Template
    ask: AskId | None


@dataclass(frozen=True, slots=True)
class Destroy:
    """Destroy an instance that no create needs, or that is in the way of one, and report it as `Destroyed`."""

    instance_id: InstanceId


@dataclass(frozen=True, slots=True)
class Prime:
    """Open a connection to a warm instance, so that its claim does not wait for one."""

    address: str


Effect = Grant | Refuse | Launch | Destroy | Prime
