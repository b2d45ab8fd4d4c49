"""Records of what the server keeps ready: warm pools, and images of a warm-up."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PoolReuse:
    """What a pool does with the slot of a sandbox that has ended; the defaults are those of a new pool.

    `policy` is "never", or "tenant": after a reset that found no difference from a fresh one, the slot is for the same
    tenant's next sandbox, for `max_uses` sandboxes at most and until `max_age` seconds after its start.
    """

    policy: str = "tenant"
    max_uses: int = 100
    max_age: float = 3600.0


@dataclass(frozen=True, slots=True)
class PoolInfo:
    """A warm pool: how many sandboxes of one kind the server keeps ready, and how many are ready now.

    `memory` and `disk` are bytes; `failures` counts consecutive failed starts, `message` is the cause of the last.
    `owner` is the tenant whose creates use the pool; None means all tenants. With `min_size` and `max_size` the
    server scales the pool with its claims.
    """

    name: str
    image: str
    size: int
    ready: int = 0
    starting: int = 0
    cpu: float = 0.0
    memory: int = 0
    disk: int = 0
    pids: int = 0
    failures: int = 0
    message: str | None = None
    owner: str | None = None
    min_size: int | None = None
    max_size: int | None = None
    gpu_count: int = 0
    gpu_type: str | None = None
    runtime_class: str | None = None
    reuse: PoolReuse = PoolReuse()

    @property
    def warm(self) -> bool:
        """True when the pool has all the ready sandboxes that it should keep."""
        return self.ready >= self.size


@dataclass(frozen=True, slots=True)
class ImageFailure:
    """Why an image of a warm-up failed; `node` is None on one machine, or if all nodes say the same."""

    image: str
    message: str
    node: str | None = None


@dataclass(frozen=True, slots=True)
class WarmupInfo:
    """The progress of a warm-up: of `images` different images, how many are `ready` and have `failed`.

    A copy is one image on one node. `seconds_left`: the copies left, divided by the rate of the last 20, or None.
    """

    id: str
    tenant: str = ""
    state: str = "PENDING"
    images: int = 0
    ready: int = 0
    failed: int = 0
    copies: int = 0
    copies_ready: int = 0
    bytes: int = 0
    seconds_left: float | None = None
    errors: tuple[ImageFailure, ...] = ()
    message: str | None = None
    created_at: str = ""
    finished_at: str | None = None

    @property
    def done(self) -> bool:
        """True when each image is ready or has failed."""
        return self.state == "DONE"
