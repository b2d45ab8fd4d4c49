"""The frozen records the SDK returns: results, events, sandboxes and files; it also gives those of `pool_records`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from sandlot.pool_records import ImageFailure as ImageFailure
from sandlot.pool_records import PoolInfo as PoolInfo
from sandlot.pool_records import PoolReuse as PoolReuse
from sandlot.pool_records import WarmupInfo as WarmupInfo


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
