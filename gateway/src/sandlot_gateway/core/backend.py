"""The interface of backends: start instances, destroy them, keep pools warm, keep records.

A backend starts sidecars and cleans up after them. It never talks to a claimed sandbox and never answers a caller:
sidecars report readiness and ends to the gateway themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable
from typing import Any, Protocol

from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_contract.template import Template

from .claim_images import ClaimImages
from .gateways import Notes, OtherGateways
from .instances import ImageCheck, Instance, PoolSpec, PoolStatus
from .owners import Claim, PendingCreate, RecordedEnd
from .runs import RunStore
from .secret_refs import SecretSource
from .slot import Loss, Phase
from .usage_source import UsageSource
from .warmups import Warmups


class BackendError(Exception):
    """A failed start, with a text for the caller; the API returns `error_type` (IMAGE_PULL_FAILED, ...)."""

    def __init__(self, message: str, *, error_type: str = "START_FAILED", field: str | None = None) -> None:
        super().__init__(message)
        self.error_type, self.field = error_type, field


class Unavailable(BackendError):
    """The backend cannot do this now; `retry_after` in seconds. `only_kind`: for other kinds of templates it can.

    `refuse`: it cannot start anything, so the gateway fails creates that would wait for a start.
    """

    def __init__(
        self, message: str, *, retry_after: float = 1.0, refuse: bool = False, only_kind: bool = False
    ) -> None:
        super().__init__(message, error_type="UNAVAILABLE")
        self.retry_after = retry_after
        self.refuse, self.only_kind = refuse, only_kind


class NodeFailed(BackendError):
    """The image cannot be prepared on this node; another node may do it.

    `lasts`: seconds for which an outage may last that is expected to end; 0.0: it is a failure.
    """

    def __init__(
        self, message: str, *, node: str, error_type: str = "START_FAILED", lasts: float = 0.0
    ) -> None:
        super().__init__(message, error_type=error_type)
        self.node = node
        self.lasts = lasts


class StillPreparing(Exception):
    """An image takes longer to prepare than an instance is held for it. `finished` waits for it; raises BackendError."""

    def __init__(self, finished: Callable[[], Coroutine[Any, Any, object]]) -> None:
        super().__init__("the image is being prepared")
        self.finished = finished


class PoolChanged(BackendError):
    """The pool has changed since the caller read it: read `Backend.pool` again and decide anew."""


class UsageChanged(BackendError):
    """Other gateways changed a document of sums at each try: nothing of this change is in it."""


class Events(Protocol):
    """The backend's callbacks into the gateway. All run in the event loop's thread and return at once."""

    def instance_found(self, instance: Instance, state: dict[str, Any]) -> None:
        """Report a live sidecar that this gateway did not know; `state` is its state document."""

    def instance_lost(self, instance_id: InstanceId, loss: Loss) -> None:
        """Report an instance that died or could not start, and will send no `ended` webhook."""

    def pending_create_found(self, sandbox_id: SandboxId, request: dict[str, Any]) -> None:
        """Report another gateway's pending create; `request` as in PendingCreate."""

    def sandbox_ended_elsewhere(self, end: RecordedEnd, *, sought: bool = False) -> None:
        """Report a sandbox that has ended, as its record or another gateway says. `sought`: it answers `Backend.sought`."""

    def generation_ended(
        self, instance_id: InstanceId, generation: int, end: RecordedEnd, *, retire: bool
    ) -> None:
        """Report the same of one generation of an instance.

        `retire`: no one resets the instance, because the record was deleted.
        """

    def record_refused(self, what: str) -> None:
        """Report a record write that was rejected for good: `claim`, `end`, `removal` or `pending_create`."""

    def phase(self, instance_id: InstanceId) -> Phase | None:
        """Return `Slots.phase`: only the gateway's ledger knows whose an instance is."""
        ...

    def owner(self, instance_id: InstanceId) -> SandboxId | None:
        """Return `Slots.owner`."""
        ...

    def knows(self, sandbox_id: SandboxId) -> bool:
        """Return whether the gateway knows this sandbox, live or ended."""
        ...

    def warm_count(self, pool: str) -> int:
        """Count the ready, unclaimed instances of this pool, so that the backend can compute how many are missing."""
        ...

    def give_up(self, pool: str) -> InstanceId | None:
        """Remove one ready, unclaimed instance of this pool from the queue and return its id, or None.

        The backend destroys it because its pool shrank, was deleted or has another template now. Only the gateway can
        rule out that a claim of it is in progress.
        """
        ...


class LeftAlone(Exception):
    """This gateway does not act on a sidecar's report because another one is about to."""


class Backend(ClaimImages, Protocol):
    name: str
    shared_notes: Notes | None  # None: there is only this gateway
    others: OtherGateways | None  # None: there is only this gateway, or it cannot reach others
    warmups: Warmups
    runs: RunStore
    secrets: SecretSource | None  # None: creates cannot name secrets by reference

    @property
    def usage(self) -> UsageSource: ...

    delete_wait: float  # seconds that a delete waits for sidecars, records and other gateways
    single_gateway: bool  # only one gateway at a time: an instance that `start` does not find is gone

    @property
    def shares_copies(self) -> bool:
        """Return whether all instances can mount a copy of another one's files that this gateway holds."""
        ...

    @property
    def lays_images(self) -> bool:
        """Return whether instances take any image with their claim, maybe but those with GPUs."""
        ...

    def kind(self, template: Template) -> str:
        """Return what instances that replace each other have in common, whichever image they take."""
        ...

    gpus_keep_image: bool  # instances with GPUs keep the image that they start with, although others take any

    @property
    def pools_without_image(self) -> bool:
        """Return whether a pool may be without an image: its instances start with one in which no command runs."""
        ...

    async def start(self, events: Events) -> None:
        """Find existing instances (calls `instance_found`), clean up dead ones and begin to fill pools."""
        ...

    async def stop(self, *, timeout: float) -> None:
        """Stop in `timeout` seconds and log what is given up; instances stay alive. It may be cancelled and come again."""
        ...

    async def launch(
        self, template: Template, *, pool: str | None = None, wanted: PendingCreate | None = None
    ) -> Instance:
        """Begin one start and return once the sidecar process exists; it sends a `ready` webhook later.

        `wanted`: the pending create that will claim the instance unless another is faster.

        Raises BackendError (bad image, with its field) or Unavailable.
        """
        ...

    def begun(self, instance_id: InstanceId) -> float | None:
        """Return when its start began, on the monotonic clock: None while it waits for its turn, 0.0 if it is unknown."""
        ...

    def unplaced(self, template: Template, *, tenant: str, started: InstanceId | None) -> str | None:
        """Return why the instance that was `started` for a create runs nowhere yet; None if that is not known.

        Without such a one, why none does of those that pools start of its template, and that its tenant may get.
        """
        ...

    async def check_image(self, image: str) -> ImageCheck:
        """Check an image, fetching it if need be. Raises BackendError if sandboxes cannot use it."""
        ...

    def ready(self, instance_id: InstanceId) -> None:
        """Note that `warm_count` includes this instance, at each `ready` webhook: the next start may begin."""

    async def recycle(
        self, instance: Instance, *, generation: int, tenant: str, pools: Collection[str]
    ) -> bool:
        """Reset the instance with proof after this generation's owner is done; return False to end it instead.

        It goes back to one of these pools, for the next sandbox of this tenant.
        """
        ...

    async def destroy(self, instance_id: InstanceId, *, given_back: bool = False) -> None:
        """Remove the instance and everything that it left. Idempotent. `given_back`: other gateways may know of a claim."""
        ...

    def instance(self, instance_id: InstanceId) -> Instance | None: ...

    def hear(self, instance_id: InstanceId, state: dict[str, Any]) -> Instance | None:
        """Return the instance that sent this signed webhook, or None if it is not needed any more.

        Raises Unavailable when the backend cannot decide yet and the sidecar should retry; LeftAlone when another
        gateway is about to act on it: the backend asks the sidecar itself if that one does not.
        """
        ...

    def claimed(self, instance: Instance, claim: Claim, *, ours: bool) -> None:
        """Record an accepted claim, made by this gateway (`ours`) or reported by the sidecar. Return at once."""

    async def share_pending_create(self, pending_create: PendingCreate) -> None:
        """Share a pending create with other gateways before its caller gets the id.

        Return once they can read it, or after a short timeout. The record stays until `claimed` or
        `pending_create_ended`.
        """
        ...

    def pending_create_ended(self, sandbox_id: SandboxId, *, verdict: str, message: str | None) -> None:
        """Record the end of a sandbox without an instance, of any gateway. Return at once."""

    def ended(self, instance_id: InstanceId, end: Loss, *, claim: Claim | None, heard: bool) -> None:
        """Record the end of an instance's sandbox. Return at once; of several calls the first counts.

        `claim` is None when the gateway does not know the sandbox, or whether there was one. `heard`: the sidecar
        reported the end; this gateway did not decide it.
        """

    async def ends_written(self, sandbox_ids: Iterable[SandboxId], *, timeout: float) -> None:
        """Wait until other gateways can read the ends of these, `timeout` seconds at most."""

    def sought(self, sandbox_id: SandboxId) -> None:
        """Look for a requested sandbox that another gateway may have. Return at once."""

    def may_have(self, sandbox_id: SandboxId) -> bool:
        """Return whether another gateway may have a sandbox that was `sought` a moment ago.

        It has said so, or one of them has not answered.
        """
        ...

    def missed(self, new: bool) -> None:
        """Count a request that waits for an unknown sandbox; `new`: its id is under a minute old. Return at once."""

    def told(self, news: bytes) -> bool:
        """Apply what another gateway has sent; return False if it is unreadable."""
        ...

    def pools(self) -> list[PoolStatus]: ...

    def pool(self, name: str) -> PoolSpec | None:
        """Return one pool by name, cheaply."""
        ...

    async def set_pool(self, spec: PoolSpec) -> None:
        """Create the pool, or change what differs from `pool(spec.name)`. Raises BackendError, PoolChanged."""
        ...

    async def delete_pool(self, name: str) -> bool: ...

    def nudge(self, pool: str) -> None:
        """Check at once whether to start another instance, because a warm one was taken."""

    def stats(self) -> dict[str, Any]:
        """Return CPU, memory and instance counts for `top` and the metrics."""
        ...

    async def destroy_all(self, *, timeout: float) -> None:
        """Destroy all instances of this backend, in `timeout` seconds at most, for a private stack that shuts down."""
