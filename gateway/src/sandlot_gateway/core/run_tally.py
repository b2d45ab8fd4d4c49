"""Counts the commands of training runs and the ends of their sandboxes, and keeps the slowest commands of each.

Plain data without clock or I/O. What is kept is bounded: `SLOWEST` commands of a run, `_MOST_RUNS` runs of a tenant.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable
from itertools import chain

import msgspec
from sandlot_contract.ids import SandboxId

from sandlot_gateway.core.bad_json import NOT_JSON

from .runs import RunId, RunKey

SLOWEST = 20  # commands that are kept of a run
COMMAND = 256  # characters of a command, as a sandbox's list of commands has
_MOST_RUNS = 200  # of a tenant; as many may have a lease
_GONE_SECONDS = 60.0  # that a run's lease may be unknown: another gateway may have just begun it
MOST_BODY = 256 << 10  # bytes of a request in which its command is looked for
_MOST_ARGUMENTS = 64


class SlowCommand(msgspec.Struct, frozen=True):
    """A command as its gateway saw it: `seconds` from the request's turn to the end of its answer."""

    sandbox_id: SandboxId
    op_id: str
    command: str | None  # its first characters; None if its request was too large, or could not be read
    seconds: float
    ended_at: float  # Unix seconds
    verdict: str | None  # None: of a stream, or without an answer


class RunCounts(msgspec.Struct):
    """The commands of a run, and ends of its sandboxes by verdict.

    `since`: the Unix time from which on all that answered have counted.
    """

    since: float
    count: int = 0
    seconds: float = 0.0
    queued_seconds: float = 0.0
    slowest: list[SlowCommand] = []
    ends: dict[str, int] = {}


class Asked(msgspec.Struct):
    """What a request of a command says of it."""

    command: str | list[str]


class _Kept:
    """What this gateway has of one run."""

    __slots__ = ("count", "ends", "fastest", "missing_since", "queued", "seconds", "slowest")

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self.queued = 0.0
        self.ends = Counter[str]()
        self.fastest = -1.0  # of the slowest: a command that took no longer is only counted
        self.slowest: list[SlowCommand] = []
        self.missing_since = math.inf

    def keep(self, command: SlowCommand) -> None:
        self.slowest = merged(self.slowest, [command])
        if len(self.slowest) == SLOWEST:
            self.fastest = self.slowest[-1].seconds


class RunTally:
    """`since`: when this gateway began to count."""

    def __init__(self, *, since: float) -> None:
        self._since = since
        self._tenants: dict[str, OrderedDict[RunId, _Kept]] = {}  # the last one used is the last

    def note(self, key: RunKey, *, seconds: float, queued: float) -> bool:
        """Count a command; return whether `keep` wants to know more of it."""
        kept = self._of(key)
        kept.count += 1
        kept.seconds += seconds
        kept.queued += queued
        return seconds > kept.fastest

    def keep(self, key: RunKey, command: SlowCommand) -> None:
        """Keep a command that `note` wanted."""
        self._tenants[key[0]][key[1]].keep(command)

    def ended(self, key: RunKey, verdict: str) -> None:
        """Count the end of a sandbox, which one gateway alone may count."""
        self._of(key).ends[verdict] += 1

    def of(self, key: RunKey) -> RunCounts:
        """Return what this gateway has of a run."""
        kept = self._tenants.get(key[0], {}).get(key[1])
        if kept is None:
            return RunCounts(self._since)
        return RunCounts(
            self._since, kept.count, kept.seconds, kept.queued, list(kept.slowest), dict(kept.ends)
        )

    def forget_but(self, leases: Collection[RunKey], *, now: float) -> None:
        """Forget the runs that have had no lease for a while, by a fresh look at all."""
        for tenant, runs in list(self._tenants.items()):
            for run_id, kept in list(runs.items()):
                if (tenant, run_id) in leases:
                    kept.missing_since = math.inf
                    continue
                kept.missing_since = min(kept.missing_since, now)
                if now >= kept.missing_since + _GONE_SECONDS:
                    del runs[run_id]
            if not runs:
                del self._tenants[tenant]

    def _of(self, key: RunKey) -> _Kept:
        tenant, run_id = key
        runs = self._tenants.get(tenant)
        kept = None if runs is None else runs.get(run_id)
        if kept is None:
            if runs is None:
                runs = self._tenants[tenant] = OrderedDict()
            elif len(runs) >= _MOST_RUNS:
                del runs[_least_needed(runs)]
            kept = runs[run_id] = _Kept()
        elif runs is not None:
            runs.move_to_end(run_id)
        return kept


def _least_needed(runs: OrderedDict[RunId, _Kept]) -> RunId:
    """Return a run whose lease is missing, else the one that was used least recently."""
    missing = (run_id for run_id, kept in runs.items() if kept.missing_since < math.inf)
    return next(missing, None) or next(iter(runs))


def merged(*lists: Iterable[SlowCommand]) -> list[SlowCommand]:
    """Return the slowest of all, each command once: a repeated request leads to the same op."""
    by_seconds = sorted(chain(*lists), key=lambda command: -command.seconds)
    ops = {
        (one.sandbox_id, one.op_id or str(number)): one for number, one in reversed([*enumerate(by_seconds)])
    }
    return sorted(ops.values(), key=lambda command: -command.seconds)[:SLOWEST]


def total(counts: Iterable[RunCounts]) -> RunCounts:
    """Return what several gateways have together; they must not be empty."""
    every = list(counts)
    return RunCounts(
        since=max(one.since for one in every),
        count=sum(one.count for one in every),
        seconds=sum(one.seconds for one in every),
        queued_seconds=sum(one.queued_seconds for one in every),
        slowest=merged(*(one.slowest for one in every)),
        ends=dict(sum((Counter(one.ends) for one in every), Counter[str]())),
    )


def command_text(command: str | list[str] | None) -> str | None:
    """Return the first characters of a command."""
    if command is None:
        return None
    line = command if isinstance(command, str) else " ".join(command[:_MOST_ARGUMENTS])
    return line[:COMMAND]


def command_in(body: bytes | bytearray) -> str | None:
    """Return the first characters of the command in a request's JSON; None if it cannot be read."""
    if len(body) > MOST_BODY:
        return None
    try:
        return command_text(msgspec.json.decode(body, type=Asked).command)
    except NOT_JSON:
        return None
