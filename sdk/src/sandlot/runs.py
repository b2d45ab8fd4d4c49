"""Records of the leases of training runs, and of their reports."""

from __future__ import annotations

from dataclasses import dataclass, field

from sandlot.accounting import UsageRow


def _no_texts() -> dict[str, str]:
    return {}


def _no_counts() -> dict[str, int]:
    return {}


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A run. `state` is ACTIVE, LOST (not renewed for its grace) or ENDED; times are ISO 8601 strings.

    `epoch` counts up with each holder. `weight` and `priority` are those of its turns in the queue. `sandboxes` counts its
    sandboxes by status, `verdicts` those that have ended.
    """

    id: str
    state: str = "ACTIVE"
    epoch: int = 0
    holder: str = ""
    grace: float = 0.0
    name: str | None = None
    metadata: dict[str, str] = field(default_factory=_no_texts)
    created_at: str = ""
    began_at: str = ""
    renewed_at: str = ""
    finished_at: str | None = None
    sandboxes: dict[str, int] = field(default_factory=_no_counts)
    verdicts: dict[str, int] = field(default_factory=_no_counts)
    weight: int = 1
    priority: int = 0

    @property
    def active(self) -> bool:
        return self.state == "ACTIVE"

    @property
    def ref(self) -> str:
        """The run and its holder, as in SANDLOT_RUN_ID: `ID@EPOCH`."""
        return f"{self.id}@{self.epoch}"


@dataclass(frozen=True, slots=True)
class RunStarts:
    """How long a run's sandboxes took from their create to RUNNING; `queued_seconds` of that they waited in the queue."""

    sandboxes: int = 0
    seconds: float = 0.0
    longest_seconds: float = 0.0
    queued_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class SlowCommand:
    """A command: its first 256 characters (None: not known), and the seconds until its answer ended."""

    sandbox_id: str
    op_id: str = ""
    command: str | None = None
    seconds: float = 0.0
    ended_at: str = ""
    verdict: str | None = None


@dataclass(frozen=True, slots=True)
class RunCommands:
    """The commands of a run, since its gateways began to count, and the slowest of them.

    `queued_seconds` is how long they waited for their sandbox's turn; `seconds` is without that. `silent_gateways` did
    not answer, so that what they forwarded is missing.
    """

    since: str = ""
    silent_gateways: int = 0
    count: int = 0
    seconds: float = 0.0
    queued_seconds: float = 0.0
    slowest: tuple[SlowCommand, ...] = ()


@dataclass(frozen=True, slots=True)
class RunReport:
    """What became of a run. `ends` counts its ended sandboxes by verdict, also those that `run` does not know any more.

    `masked` has those of them that the infrastructure lost: they are no samples. `usage` has whole hours from `usage_since` on, and the sandboxes that began in them.
    """

    run: RunInfo
    ends: dict[str, int] = field(default_factory=_no_counts)
    masked: dict[str, int] = field(default_factory=_no_counts)
    starts: RunStarts = RunStarts()
    usage: UsageRow = field(default_factory=UsageRow)
    usage_since: str = ""
    commands: RunCommands = RunCommands()
