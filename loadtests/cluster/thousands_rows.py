"""The rows of many sandboxes at once: what one run measured, as values with bounds and what they were computed from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sandlot_grade.report.stats import percentile

from loadtests.cluster.api_requests import each
from loadtests.reading import Reading

ROWS = (
    "lost",
    "fill",
    "create",
    "exec",
    "exec_in_flight",
    "reattached",
    "delete",
    "gateway_memory",
    "gateway_cpu",
    "controller_memory",
    "controller_cpu",
    "requests_create",
    "requests",
    "writes",
)
CONTROLLER = "controller"
_MEBI = 1 << 20


@dataclass(frozen=True, slots=True)
class Times:
    """Sorted seconds of calls, and how long they took together."""

    each: list[float]
    wall: float

    def parts(self, what: str) -> dict[str, str]:
        told = {f"{what}s/s": f"{len(self.each) / self.wall:.0f}"}
        return told | {
            f"{what} p{share * 100:.0f}": _ms(percentile(self.each, share)) for share in (0.5, 0.99)
        }


@dataclass(frozen=True, slots=True)
class Moment:
    """CPU seconds of each part, and requests to the API server by `VERB RESOURCE`, until one moment."""

    at: float
    cpu: Mapping[str, float]
    requests: Counter[str]


@dataclass(frozen=True, slots=True)
class Found:
    """What a run measured. `reattached`: seconds from the kill until the dead gateway's connections were seen to close, and
    all their commands had callers again.

    Moments: `empty`, `filled` (all claimable), `created`, `first` (each sandbox has run a command), `quiet` (short ones
    have run), `attached` (all in flight), `busy` (short ones have run beside them), `ended` (the killed gateway is back,
    and no command runs), `deleted`. Memory is of `busy`, in bytes by part; `survivor` of the gateway that then has all
    `survived` commands.
    """

    sandboxes: int
    moments: Mapping[str, Moment]
    creates: Times
    first: Times
    quiet: Times
    busy: Times
    deletes: Times
    in_flight: int
    survived: int
    commands: int  # that were asked for
    runs: int
    lost: list[str]
    memory: Mapping[str, int]
    survivor: int
    reattached: float
    again: float
    writes: Counter[str]

    def cpu(self, since: str, until: str, parts: Iterable[str]) -> float:
        """Return the CPU seconds of these parts between two moments, between which none of them was started again."""
        before, after = self.moments[since].cpu, self.moments[until].cpu
        return sum(after[part] - before[part] for part in parts)

    def requests(self, since: str, until: str) -> Counter[str]:
        """Return the requests of all clients to the API server between two moments."""
        return self.moments[until].requests - self.moments[since].requests

    @property
    def gateways(self) -> list[str]:
        return [part for part in self.memory if part != CONTROLLER]


def rows(found: Found) -> dict[str, Reading]:
    """Return a reading for each of ROWS."""
    count, twice = found.sandboxes, max(0, found.runs - found.commands)
    filling = found.moments["filled"].at - found.moments["empty"].at
    quiet, busy = percentile(found.quiet.each, 0.5), percentile(found.busy.each, 0.5)
    made, lived = found.requests("filled", "ended"), found.requests("filled", "deleted")
    return {
        "lost": Reading(
            value=len(found.lost) + twice,
            parts={
                "commands": str(found.commands),
                "in flight": str(found.in_flight),
                "of them when the gateway is killed": str(found.survived),
                "run twice": str(twice),
                **({"lost": found.lost[0][:120]} if found.lost else {}),
            },
        ),
        "fill": Reading(
            value=filling,
            parts={
                "pods/s": f"{count / filling:.0f}",
                **_named("requests a pod", each(found.requests("empty", "filled"), count)),
            },
        ),
        "create": Reading(
            value=percentile(found.creates.each, 0.99),
            parts=found.creates.parts("create"),
            curves={"create": found.creates.each},
        ),
        "exec": Reading(
            value=percentile(found.busy.each, 0.99) * 1000,
            parts=found.busy.parts("exec"),
            curves={"with all in flight": found.busy.each},
        ),
        "exec_in_flight": Reading(
            value=busy / quiet,
            parts={
                **found.first.parts("first exec"),
                "with": _ms(busy),
                **{f"without: {name}": value for name, value in found.quiet.parts("exec").items()},
            },
            curves={"without": found.quiet.each},
        ),
        "reattached": Reading(
            value=found.reattached,
            parts={
                "commands": str(found.survived),
                "the killed gateway was back, and knew all, after": f"{found.again:.1f} s",
            },
        ),
        "delete": Reading(
            value=percentile(found.deletes.each, 0.99),
            parts=found.deletes.parts("delete"),
            curves={"delete": found.deletes.each},
        ),
        "gateway_memory": Reading(
            value=max(found.memory[name] for name in found.gateways) / _MEBI,
            parts={
                **{name: _mebi(found.memory[name]) for name in found.gateways},
                f"the other one with {found.survived} commands, after the kill": _mebi(found.survivor),
            },
        ),
        "gateway_cpu": _gateway_cpu(found),
        "controller_memory": Reading(value=found.memory[CONTROLLER] / _MEBI),
        "controller_cpu": _controller_cpu(found),
        "requests_create": Reading(
            value=made.total() / count,
            parts={"in all": str(made.total()), **each(made, count)},
        ),
        "requests": Reading(
            value=lived.total() / count, parts={"in all": str(lived.total()), **each(lived, count)}
        ),
        "writes": Reading(value=found.writes.total() / count, parts=each(found.writes, count)),
    }


def _gateway_cpu(found: Found) -> Reading:
    parts = found.gateways

    def cost(since: str, until: str, times: Times) -> str:
        return f"{found.cpu(since, until, parts) / len(times.each) * 1000:.2f} ms"

    creating = found.cpu("filled", "created", parts)
    return Reading(
        value=creating / found.sandboxes * 1000,
        parts={
            "cores while creates come": f"{creating / found.creates.wall:.2f}",
            "a first command": cost("created", "first", found.first),
            "a short command": cost("first", "quiet", found.quiet),
            "with all in flight": cost("attached", "busy", found.busy),
            "a delete": cost("ended", "deleted", found.deletes),
            "until all are claimable": f"{found.cpu('empty', 'filled', parts):.1f} s",
        },
    )


def _controller_cpu(found: Found) -> Reading:
    def used(since: str, until: str) -> float:
        return found.cpu(since, until, (CONTROLLER,))

    filled = used("empty", "filled")
    return Reading(
        value=used("empty", "deleted") / found.sandboxes * 1000,
        parts={
            "in all": f"{used('empty', 'deleted'):.1f} s",
            "until all are claimable": f"{filled:.1f} s, {filled / found.sandboxes * 1000:.2f} ms a pod",
            "while creates come": f"{used('filled', 'created'):.1f} s",
            "while commands run": f"{used('created', 'ended'):.1f} s",
            "while deletes come": f"{used('ended', 'deleted'):.1f} s",
        },
    )


def _named(what: str, parts: Mapping[str, str]) -> dict[str, str]:
    return {what: ", ".join(f"{name} {value}" for name, value in parts.items())} if parts else {}


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"


def _mebi(size: int) -> str:
    return f"{size / _MEBI:.0f} MiB"
