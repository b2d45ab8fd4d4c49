"""What the command and a generator process tell each other: JSON lines over the generator's stdin and stdout."""

from __future__ import annotations

import msgspec

from loadtests.load.profile import Phase


class Setup(msgspec.Struct, kw_only=True):
    """The first line to a generator. `zero` is the run's beginning by the machine's monotonic clock."""

    url: str
    api_key: str
    image: str | None
    pool: str | None
    cpu: float | None
    label: str
    process: int
    processes: int
    zero: float
    journal: str
    seed: int


class Assignment(msgspec.Struct, kw_only=True):
    """A phase to run from `start` on, by the same clock."""

    phase: Phase
    start: float


class Ledger(msgspec.Struct, kw_only=True):
    """What the sandboxes' own records say of commands: `lost` were answered and did not run, `twice` ran again."""

    recorded: int = 0
    lost: int = 0
    twice: int = 0
    unread: int = 0  # sandboxes whose record could not be read


class Done(msgspec.Struct, kw_only=True):
    """The answer to an assignment. `lags` and `sends` are seconds; `cpu` and `wall` those of the generator."""

    phase: str
    process: int
    calls: int
    cpu: float
    wall: float
    lags: list[float]
    sends: list[float]
    ledger: Ledger | None = None
