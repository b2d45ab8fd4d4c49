"""Records of the leases of training runs."""

from __future__ import annotations

from dataclasses import dataclass, field


def _no_texts() -> dict[str, str]:
    return {}


def _no_counts() -> dict[str, int]:
    return {}


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A run. `state` is ACTIVE, LOST (not renewed for its grace) or ENDED; times are ISO 8601 strings.

    `epoch` counts up with each holder. `weight` is that of its turns in the queue. `sandboxes` counts its sandboxes by status, `verdicts` those that have ended.
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

    @property
    def active(self) -> bool:
        return self.state == "ACTIVE"

    @property
    def ref(self) -> str:
        """The run and its holder, as in SANDLOT_RUN_ID: `ID@EPOCH`."""
        return f"{self.id}@{self.epoch}"
