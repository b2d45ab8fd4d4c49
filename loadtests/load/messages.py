"""The messages between the command and a generator process: JSON lines over its stdin and stdout."""

from __future__ import annotations

import msgspec

from loadtests.load.profile import Phase


class Setup(msgspec.Struct, kw_only=True):
    """The first line to a generator. `zero` is the start of the run on the machine's monotonic clock.

    `images` are those of the profile's data set, the most popular first; without, all tasks have `image`.
    """

    url: str
    api_key: str
    image: str | None
    images: list[str]
    zipf: float
    pool: str | None
    cold_pool: str | None
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
    """Counts from the sandboxes' ledgers: `lost` commands had a response but did not run, `twice` ran again."""

    recorded: int = 0
    lost: int = 0
    twice: int = 0
    unread: int = 0  # sandboxes whose ledger could not be read


class Done(msgspec.Struct, kw_only=True):
    """The response to an assignment. `lags`, `sends` and the generator's `cpu` and `wall` are seconds.

    `figures` are what a phase of groups, forks or a fair share counts beyond its calls.
    """

    phase: str
    process: int
    calls: int
    cpu: float
    wall: float
    lags: list[float]
    sends: list[float]
    ledger: Ledger | None = None
    figures: dict[str, float] = {}
