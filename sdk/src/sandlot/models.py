"""The frozen records the SDK returns: results, events, sandboxes, files and pools."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Verdict(StrEnum):
    """Why a command ended. `UNKNOWN` is a verdict that this version of the client does not know."""

    EXITED = "exited"
    SIGNALED = "signaled"
    TIMEOUT = "timeout"
    OOM = "oom"
    DISK_FULL = "disk_full"
    PIDS_LIMIT = "pids_limit"
    KILLED = "killed"
    CLIENT_GONE = "client_gone"
    START_FAILED = "start_failed"
    SANDBOX_ENDED = "sandbox_ended"
    SANDBOX_BROKEN = "sandbox_broken"
    SIDECAR_LOST = "sidecar_lost"
    EVICTED = "evicted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Usage:
    """Resource use of a command: seconds queued, wall and CPU seconds, peak memory in bytes (0 if unknown)."""

    queued: float = 0.0
    wall: float = 0.0
    cpu: float = 0.0
    peak_memory: int = 0


@dataclass(frozen=True, slots=True)
class ExecResult:
    """Outcome and output of a command. Bytes that are not UTF-8 are U+FFFD in `stdout` and `stderr`."""

    stdout: str
    stderr: str
    exit_code: int
    verdict: Verdict
    op_id: str
    signal: int | None = None
    truncated: bool = False
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    message: str | None = None
    usage: Usage = Usage()

    @property
    def ok(self) -> bool:
        """True when the command ended by itself with exit code 0."""
        return self.exit_code == 0 and self.verdict == Verdict.EXITED


@dataclass(frozen=True, slots=True)
class Stdout:
    """A chunk of standard output; `text` is decoded incrementally, so no character is split across chunks."""

    data: bytes
    text: str


@dataclass(frozen=True, slots=True)
class Stderr:
    """A chunk of standard error; see `Stdout`."""

    data: bytes
    text: str


@dataclass(frozen=True, slots=True)
class Exit:
    """The last event of a command; the earlier events carry its output."""

    exit_code: int
    verdict: Verdict
    op_id: str
    signal: int | None = None
    truncated: bool = False
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    message: str | None = None
    usage: Usage = Usage()

    @property
    def ok(self) -> bool:
        """True when the command ended by itself with exit code 0."""
        return self.exit_code == 0 and self.verdict == Verdict.EXITED


Event = Stdout | Stderr | Exit


def _no_numbers() -> dict[str, float]:
    return {}


@dataclass(frozen=True, slots=True)
class SandboxInfo:
    """The latest known state of a sandbox. Sizes are bytes, durations seconds, times ISO 8601 strings."""

    id: str
    name: str = ""
    image: str = ""
    status: str = "PENDING"
    verdict: str | None = None
    message: str | None = None
    cpu: float = 0.0
    memory: int = 0
    disk: int = 0
    gpu_count: int = 0
    gpu_type: str | None = None
    network: str = "full"
    timeout: float | None = None
    idle_timeout: float | None = None
    labels: tuple[str, ...] = ()
    run: str | None = None
    run_epoch: int | None = None  # of the holder of its run's lease, if it ends with that
    group: str | None = None  # id of the group that it was created with
    service: str | None = None  # its name for the other sandboxes of that group
    created_at: str = ""
    started_at: str | None = None
    ended_at: str | None = None
    exit_code: int | None = None
    pool_hit: bool = False
    cold_reason: str | None = None  # why it was a cold start although the server has a pool of its image
    timings: dict[str, float] = field(default_factory=_no_numbers)
    notes: tuple[str, ...] = ()
    queue_position: int | None = None  # while it waits for an instance, 1 is next
    estimated_wait: float | None = None  # with it, as others were served lately; None if unknown
    pending_message: str | None = (
        None  # while PENDING: what it waits for, such as an image or a node; None if unknown
    )

    @property
    def ended(self) -> bool:
        return self.status in {"ERROR", "TERMINATED", "TIMEOUT"}


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """The egress policy of a sandbox: only `allow`, or everything but `deny`; the other is None."""

    allow: tuple[str, ...] | None
    deny: tuple[str, ...] | None
    generation: int


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One file or directory of a sandbox; `type` is file, dir, symlink or other, `mode` an octal string."""

    path: str
    type: str
    size: int
    mode: str
    uid: int
    gid: int
    user: str | None
    group: str | None
    mtime: float
    target: str | None = None

    @property
    def name(self) -> str:
        return self.path.rstrip("/").rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Exposure:
    """A port of a sandbox that is reachable from outside: `url` for HTTP, `endpoint` (host:port) for TCP and UDP."""

    id: str
    sandbox_id: str
    port: int
    protocol: str
    url: str
    name: str | None = None
    endpoint: str | None = None


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """A snapshot of a sandbox's files, kept on the server; `create` accepts one that is `DURABLE`.

    In bytes: `size` of its files, `stored` of its archive (None until complete), `disk` of a sandbox from it. It does
    not depend on the previous one, `parent_id`. `name` and `metadata` are the caller's. It has only what is at or below
    `paths` (everything, if there are none), and no name like one of `without`. `failed_by_files`: it is FAILED because
    of what the sandbox's code wrote. `entries` counts files, directories, links and deletions. `origin_id` is the
    checkpoint that its sandbox was created from, if any.
    """

    id: str
    sandbox_id: str
    state: str
    image: str
    disk: int = 0
    size: int = 0
    stored: int | None = None
    parent_id: str | None = None
    depth: int = 0
    error: str | None = None
    created_at: str = ""
    name: str | None = None
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    paths: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    failed_by_files: bool = False
    entries: int = 0
    origin_id: str | None = None


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


@dataclass(frozen=True, slots=True)
class DeleteResult:
    """Result of a bulk delete: the deleted ids, and the error for each other id."""

    deleted: tuple[str, ...]
    failed: dict[str, str]


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a batch: items finished (of which `failed` raised), running now, and in total."""

    done: int
    failed: int
    running: int
    total: int
