"""What can happen to starts and waiting creates, and what is to be done about it; the words of core/supply.py.

An ask is a create that wants an instance, a start is one call of the backend's `launch`: both have numbers of their own,
which whoever carries out the effects gives (asks) or is given (starts).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

from sandlot_contract.ids import InstanceId
from sandlot_contract.template import Template
from sandlot_contract.verdicts import SandboxVerdict

from sandlot_gateway.core.instances import Instance

# Ends that only a sandbox with an owner has: an instance with one of them did start.
_OF_OWNED: frozenset[str] = frozenset(
    {
        SandboxVerdict.DELETED,
        SandboxVerdict.DEADLINE,
        SandboxVerdict.IDLE,
        SandboxVerdict.EXITED,
        SandboxVerdict.RESET_FAILED,
        SandboxVerdict.INIT_KILLED,
        SandboxVerdict.GIVEN_BACK,
    }
)

AskId = NewType("AskId", int)
StartId = NewType("StartId", int)


class QueueFull(Exception):
    """As many creates wait as may; `retry_after` in seconds is a guess from recent starts."""

    def __init__(self, *, position: int, retry_after: float) -> None:
        super().__init__(f"the queue for new sandboxes is full ({position - 1} waiting)")
        self.position = position
        self.retry_after = retry_after


class CannotStart(Exception):
    """Nothing warm fits, and the backend can start nothing at this time; `retry_after` in seconds."""

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class StartFailed(Exception):
    """No instance could be started; `verdict` is the sandbox's, `field` names the bad request field if there is one."""

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


# What happens.


@dataclass(frozen=True, slots=True)
class Asked:
    """A create wants an instance.

    `again`: it has lost its instance to somebody else and goes to the front, however full the line is.
    `patient`: it waits until starts can be again. `at_once`: else nothing is started for it before the next event.
    """

    ask: AskId
    template: Template
    tenant: str
    pool: str | None = None
    again: bool = False
    patient: bool = False
    at_once: bool = True


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A create does not want one any more. One that has its instance keeps it, and has to offer it again."""

    ask: AskId


@dataclass(frozen=True, slots=True)
class Launched:
    """The backend has begun a start; its instance may have been heard of before."""

    start: StartId
    instance_id: InstanceId


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    """The backend can never start this."""

    start: StartId
    error: StartFailed


@dataclass(frozen=True, slots=True)
class LaunchRefused:
    """The backend can start nothing for `retry_after` seconds. `refuse`: tell so those who would wait for it."""

    start: StartId
    message: str
    retry_after: float
    refuse: bool


@dataclass(frozen=True, slots=True)
class Offered:
    """An instance is ready and nobody's: its slot is UNHEARD until it is granted or waits."""

    instance: Instance


@dataclass(frozen=True, slots=True)
class Lost:
    """An instance is gone, or could not start."""

    instance_id: InstanceId
    verdict: str
    message: str

    @property
    def had_owner(self) -> bool:
        """It did start, and a sandbox owned it."""
        return self.verdict in _OF_OWNED


@dataclass(frozen=True, slots=True)
class Taken:
    """An instance has an owner, maybe by another gateway: who waits for its start waits for another."""

    instance_id: InstanceId


@dataclass(frozen=True, slots=True)
class RoomMade:
    """Something has ended: a start that was refused for want of room may go through now."""


@dataclass(frozen=True, slots=True)
class Looked:
    """Time has passed, or what the backend says of its pools has changed."""


Event = (
    Asked | Withdrawn | Launched | LaunchFailed | LaunchRefused | Offered | Lost | Taken | RoomMade | Looked
)


# What is to be done.


@dataclass(frozen=True, slots=True)
class Grant:
    """The ask has an instance, and this is what it cost to get it (seconds)."""

    ask: AskId
    instance: Instance
    pool_hit: bool
    queued: float
    start: float


@dataclass(frozen=True, slots=True)
class Refuse:
    """The ask gets none."""

    ask: AskId
    error: QueueFull | CannotStart | StartFailed


@dataclass(frozen=True, slots=True)
class Launch:
    """Ask the backend for a start, and say what came of it. `ask`: whom it is meant for."""

    start: StartId
    template: Template
    ask: AskId | None


@dataclass(frozen=True, slots=True)
class Destroy:
    """Nobody wants this instance."""

    instance_id: InstanceId


@dataclass(frozen=True, slots=True)
class Prime:
    """An instance waits to be claimed: its claim need not wait for a connection."""

    address: str


Effect = Grant | Refuse | Launch | Destroy | Prime
