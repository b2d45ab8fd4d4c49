"""What the gateway asks of the machine below it: start an instance, forget it, keep pools warm.

The backend starts sidecars and cleans up after them. It never talks to a claimed sandbox and never
answers a caller: readiness and ends arrive at the gateway from the sidecars themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_contract.template import Template

from .instances import ImageCheck, Instance, PoolSpec, PoolStatus
from .owners import Claim, KeyAnswer, KeyQuestion, Promise, RecordedEnd
from .slots import Loss, Phase


class BackendError(Exception):
    """A start that failed for a reason the caller should read; `error_type` is on the wire (IMAGE_PULL_FAILED, ...)."""

    def __init__(self, message: str, *, error_type: str = "START_FAILED", field: str | None = None) -> None:
        super().__init__(message)
        self.error_type = error_type
        self.field = field


class Unavailable(BackendError):
    """Not at this moment; `retry_after` in seconds.

    `refuse`: nothing can be started at all, so whoever would wait for a start is told so instead.
    """

    def __init__(self, message: str, *, retry_after: float = 1.0, refuse: bool = False) -> None:
        super().__init__(message, error_type="UNAVAILABLE")
        self.retry_after = retry_after
        self.refuse = refuse


class PoolChanged(BackendError):
    """The pool is not as the caller saw it (any more): decide again, by what `Backend.pool` says now."""


class Events(Protocol):
    """What the backend tells the gateway. All are called in the event loop's thread and return at once."""

    def instance_found(self, instance: Instance, state: dict[str, Any]) -> None:
        """A sidecar that this gateway did not hear of before is alive; `state` is its state document."""

    def instance_lost(self, instance_id: InstanceId, loss: Loss) -> None:
        """The instance is gone (its process died, it could not start) and will send no `ended` of its own."""

    def promise_found(self, sandbox_id: SandboxId, request: dict[str, Any]) -> None:
        """Another gateway has promised this sandbox and works on it; `request` is the Promise's."""

    def sandbox_over(self, end: RecordedEnd) -> None:
        """Its record says that it has ended."""

    def record_refused(self, what: str) -> None:
        """A write of a record that will never be taken: of a `claim`, an `end`, a `removal` or a `promise`."""

    def phase(self, instance_id: InstanceId) -> Phase | None:
        """As `Slots.phase`: whose an instance is says the gateway, and no backend keeps it."""
        ...

    def owner(self, instance_id: InstanceId) -> SandboxId | None:
        """As `Slots.owner`."""
        ...

    def warm_count(self, pool: str) -> int:
        """How many instances of this pool are ready and unclaimed, so that the backend knows what is missing."""
        ...

    def give_up(self, pool: str) -> InstanceId | None:
        """Take one ready, unclaimed instance of this pool out of the queue for good and name it, or None.

        The backend destroys it: its pool became smaller, went away or has another template now. Nobody can
        be claiming it at this moment, which only the gateway knows.
        """
        ...


class LeftAlone(Exception):
    """What a sidecar says is not acted on here: another gateway is about to."""


NotesChanged = Callable[[SandboxId, dict[str, Any]], None]


class Notes(Protocol):
    """Documents about live sandboxes that every gateway learns of; they go with their sandbox."""

    def subscribe(self, told: NotesChanged) -> None:
        """`told` gets a sandbox's id and all its notes by key, whoever's, each time that they have changed.

        Before `start`; each of several gets all.
        """

    async def put(
        self, sandbox_id: SandboxId, key: str, document: dict[str, Any], *, port: int | None
    ) -> bool:
        """`port`: one that no other live sandbox may have; False when one has. Raises BackendError."""
        ...

    async def take(self, sandbox_id: SandboxId, key: str, *, port: int | None) -> None:
        """Take it away. Raises BackendError."""
        ...


class OtherGateways(Protocol):
    async def holder_of_key(self, question: KeyQuestion) -> KeyAnswer:
        """Asks all of them; takes no longer than a second or two, whatever they do."""
        ...


class Backend(Protocol):
    name: str
    shared_notes: Notes | None  # None: this gateway is the only one
    others: OtherGateways | None  # None: this gateway is the only one, or cannot ask any other
    finds_all: bool  # an instance from before that is not found by `start` is gone

    async def start(self, events: Events) -> None:
        """Find what is there already (calls `instance_found`), clean up what is dead, begin to keep pools."""
        ...

    async def stop(self) -> None:
        """Stop working; running instances stay alive."""
        ...

    async def launch(
        self, template: Template, *, pool: str | None = None, wanted: Promise | None = None
    ) -> Instance:
        """Begin one start and return as soon as the sidecar process exists; readiness comes as its `ready` webhook.

        `wanted`: the sandbox that will claim it, unless another is faster.

        Raises BackendError (bad image, with its field) or Unavailable.
        """
        ...

    def begun(self, instance_id: InstanceId) -> float | None:
        """When its start began, on the monotonic clock; None while it waits for its turn or for room.

        0.0 for one that is not known (any more).
        """
        ...

    async def check_image(self, image: str) -> ImageCheck:
        """May take as long as the image's fetch. Raises BackendError where sandboxes cannot have it."""
        ...

    def ready(self, instance_id: InstanceId) -> None:
        """The gateway has taken this instance's `ready` and `warm_count` has it: the next start may begin.

        Called for every `ready` webhook, also after a recycle; an unknown id is ignored.
        """

    async def recycle(self, instance: Instance, *, generation: int) -> bool:
        """After this generation's owner is done: offer the instance for a proven reset. False: end it instead."""
        ...

    async def destroy(self, instance_id: InstanceId, *, given_back: bool = False) -> None:
        """Take the instance and all it left away. Idempotent.

        `given_back`: a claim of it has failed here, and other gateways may have heard of that claim.
        """
        ...

    def instance(self, instance_id: InstanceId) -> Instance | None: ...

    def hear(self, instance_id: InstanceId, state: dict[str, Any]) -> Instance | None:
        """The instance whose signed webhook this is; None when nobody wants it (any more).

        Raises Unavailable when that cannot be told yet, and the sidecar sends it again; LeftAlone when another gateway
        is about to act on it, and the backend asks the sidecar itself should that one not do so.
        """
        ...

    def claimed(self, instance: Instance, claim: Claim, *, ours: bool) -> None:
        """Its sidecar has accepted this owner: from this gateway (`ours`), or it says so of whoever it was.

        Returns at once.
        """

    async def promise(self, promise: Promise) -> None:
        """A caller is about to be told of this sandbox, which has no instance yet: let other gateways know it.

        Returns once they can, or after a moment. It is kept until the sandbox is `claimed` or `promise_ended`.
        """
        ...

    def promise_ended(self, sandbox_id: SandboxId, *, verdict: str, message: str | None) -> None:
        """A sandbox has ended before it had an instance, promised by whatever gateway or not. Returns at once."""

    def ended(self, instance_id: InstanceId, end: Loss, *, claim: Claim | None, heard: bool) -> None:
        """Its sandbox has ended, and this is why. Returns at once; of several calls the first counts.

        `claim` is None where the gateway does not know the sandbox, nor whether there was one. `heard`: by its
        sidecar's word, and not by a decision of this gateway.
        """

    async def ends_written(self, sandbox_ids: Iterable[SandboxId], *, timeout: float) -> None:
        """Until the ends of these are where other gateways find them, `timeout` seconds at most."""

    def sought(self, sandbox_id: SandboxId) -> None:
        """Somebody asks for a sandbox that another gateway may have made within the last minute. Returns at once."""

    def missed(self, new: bool) -> None:
        """Somebody waits for a sandbox of another gateway that is not heard of; `new`: its id is not a minute old.

        Returns at once.
        """

    def pools(self) -> list[PoolStatus]: ...

    def pool(self, name: str) -> PoolSpec | None:
        """One of them, at the cost of a look-up."""
        ...

    async def set_pool(self, spec: PoolSpec) -> None:
        """Make the pool, or change what differs from `pool(spec.name)`. Raises BackendError, PoolChanged."""
        ...

    async def delete_pool(self, name: str) -> bool: ...

    def nudge(self, pool: str) -> None:
        """A warm instance was taken: look at once whether to start another."""

    def stats(self) -> dict[str, Any]:
        """For `top` and the metrics: cpu, memory and instance counts of this machine."""
        ...

    async def destroy_all(self) -> None:
        """End everything this backend has (a private stack goes down)."""
        ...
