"""The schema of a load test: a warm pool, baselines, and phases; profile_files.py reads it from YAML."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from loadtests.floors import COMMAND
from loadtests.load.fields import Count, Seconds, Strict, one_of
from loadtests.load.rl_kinds import FairShare, Forks, Groups

KINDS = ("closed", "open", "rest", "warm_up", "rollouts", "groups", "fair_share", "forks")
WITH_STEPS = ("closed", "open")
Framework = Literal["verifiers", "verl", "harbor"]


class Closed(Strict, frozen=True):
    """A closed loop: each caller starts its next task when its last has ended: `tasks` in all, or for `seconds`."""

    callers: Count
    tasks: Count | None = None
    seconds: Seconds | None = None

    def __post_init__(self) -> None:
        one_of(self, "tasks", "seconds")


class Open(Strict, frozen=True):
    """An open loop: tasks start at scheduled times, independent of earlier ones; `in_flight` bounds their number.

    `rate` is in tasks per second; with `of` it is a share of what that earlier closed loop reached.
    """

    rate: Annotated[float, Meta(gt=0)]
    seconds: Seconds
    of: str | None = None
    spacing: Literal["even", "poisson"] = "poisson"
    in_flight: Count = 2000


class Rest(Strict, frozen=True):
    """A phase without calls; the parts' resource use is still recorded."""

    seconds: Seconds


class WarmUp(Strict, frozen=True):
    """A phase without calls, in which an image warm-up prepares all images of the profile, in `seconds` at most."""

    seconds: Seconds


class Rollouts(Strict, frozen=True):
    """Rollouts of a code environment (loadtests/code_env) on a framework, by so many callers, `tasks` in all.

    A scripted model writes each program in `model` seconds on average; `tests` of its problem run at once. They run in
    sandboxes, or for the floor as plain `processes`. `kill_every`: every n-th sandbox is killed, or where rollouts
    share them, one as every n-th rollout begins its tests.
    """

    callers: Count
    tasks: Count
    model: Seconds
    tests: Count = 15
    by: Framework = "verifiers"
    on: Literal["sandboxes", "processes"] = "sandboxes"
    kill_every: Count | None = None

    def __post_init__(self) -> None:
        if self.by == "harbor" and self.on == "processes":
            raise ValueError("`on`: harbor's trials have a sandbox each, so there are none on `processes`")


class Step(Strict, frozen=True):
    """One step of a task in its sandbox. Exactly one of the first five fields selects the action.

    A command finds its own number, unique in the run, in $NUMBER; `{number}` in `expect` stands for it, `{image}` for
    what the file /task/name of the task's image says.
    """

    exec: str | list[str] | None = None
    write: str | None = None  # a path
    read: str | None = None  # a path
    pause: Annotated[float, Meta(ge=0)] | None = None
    repeat: Count | None = None

    times: Count = 1  # exec: how many
    at_once: Count = 1  # exec: how many at the same time
    expect: str | None = None  # exec, read: the exact expected output
    timeout: Seconds = 60.0  # exec
    content: str | None = None  # write
    bytes: Count | None = None  # write: number of bytes, instead of `content`
    steps: list[Step] = msgspec.field(default_factory=list)  # repeat

    def __post_init__(self) -> None:
        kind = one_of(self, "exec", "write", "read", "pause", "repeat")
        if kind == "write":
            one_of(self, "content", "bytes")
        if (kind == "repeat") != bool(self.steps):
            raise ValueError("`repeat` and `steps` belong together")
        if self.at_once > self.times:
            raise ValueError(f"`at_once` ({self.at_once}) is more than `times` ({self.times})")


class Fault(Strict, frozen=True):
    """A fault during a phase: one process of the part is killed `at` seconds after the phase began."""

    at: Annotated[float, Meta(ge=0)]
    kill: Literal["gateway"]


class Strangers(Strict, frozen=True):
    """An attack during a phase: code in extra sandboxes holds this many connections to each gateway open.

    It has no credential. Half of the connections never end their headers, the others send a body of so many bytes.
    """

    connections: Count
    sandboxes: Count
    body: Count = 8 << 20

    def __post_init__(self) -> None:
        if self.connections < self.sandboxes:
            raise ValueError(
                f"`connections` is {self.connections} and must be at least `sandboxes` ({self.sandboxes})"
            )


class Images(Strict, frozen=True):
    """`count` different images, which the place provides; the n-th most popular has a share like 1 / n ** `zipf`."""

    count: Count
    zipf: Annotated[float, Meta(ge=0)]


class Phase(Strict, frozen=True):
    """One kind of load. Exactly one of KINDS is set.

    `sandbox`: each task has its `own`, makes one for later phases (`keep`), or uses one of those (`kept`). `ledger` is a
    file in the sandbox to which commands append $NUMBER; it shows which commands were lost or ran twice. With `cold`
    each sandbox asks for a size that no warm one has, so it is started for its task. `pods_exec`: so many callers of the API server's
    own `pods/exec` run the baseline's command meanwhile, where there is one, in pods of their own.
    """

    name: Annotated[str, Meta(pattern="^[a-z][a-z0-9_]*$")]
    closed: Closed | None = None
    open: Open | None = None
    rest: Rest | None = None
    warm_up: WarmUp | None = None
    rollouts: Rollouts | None = None
    groups: Groups | None = None
    fair_share: FairShare | None = None
    forks: Forks | None = None
    sandbox: Literal["own", "keep", "kept"] = "own"
    cold: bool = False
    steps: list[Step] = msgspec.field(default_factory=list)
    ledger: str | None = None
    faults: list[Fault] = msgspec.field(default_factory=list)
    strangers: Strangers | None = None
    pods_exec: Count | None = None

    def __post_init__(self) -> None:
        kind = one_of(self, *KINDS)
        self._faults_are_within(self.seconds, kind=kind)
        if self.pods_exec is not None and self.seconds is None:
            raise ValueError(
                f"`pods_exec` needs `{kind}.seconds`: its callers do not know when the others end"
            )
        without_steps = kind not in WITH_STEPS
        if without_steps and (self.steps or self.ledger):
            raise ValueError(f"a phase with `{kind}` has no steps and no ledger")
        if self.sandbox == "kept" and not without_steps and not self.steps:
            raise ValueError("`steps` is empty: tasks in kept sandboxes would do nothing")

    @property
    def seconds(self) -> float | None:
        """Return how long tasks begin; None: until so many are done."""
        load = next(load for load in (getattr(self, kind) for kind in KINDS) if load is not None)
        return getattr(load, "seconds", None)

    @property
    def together(self) -> int:
        """Return how many sandboxes of the pool the phase takes at once; 0 for kinds whose tasks take one each."""
        if self.groups is not None:
            return self.groups.size
        return self.forks.count if self.forks is not None else 0

    @property
    def in_one_process(self) -> bool:
        """True for kinds whose callers wait for one another."""
        return not (self.groups is self.fair_share is self.forks is None)

    @property
    def breaks(self) -> bool:
        """True if the phase kills or attacks parts of the place."""
        kills = self.rollouts is not None and self.rollouts.kill_every is not None
        return kills or bool(self.faults or self.strangers)

    def _faults_are_within(self, seconds: float | None, *, kind: str) -> None:
        for index, fault in enumerate(self.faults):
            if seconds is None:
                raise ValueError(f"`faults` needs `{kind}.seconds`: a phase of so many tasks may end before")
            if fault.at >= seconds:
                field = f"`faults[{index}].at`"
                raise ValueError(
                    f"{field} is {fault.at:g} and must be less than `{kind}.seconds` ({seconds:g})"
                )


class Baseline(Strict, frozen=True):
    """Baselines without Sandlot before the first phase and after the last, for about `seconds` each.

    `callers` are the threads of the baselines that have many.
    """

    command: list[str] = msgspec.field(default_factory=lambda: list(COMMAND))
    seconds: Seconds = 2.0
    callers: Count = 64


class Profile(Strict, frozen=True):
    """`pool` is how many sandboxes are kept warm, `processes` how many generate load; `cpu` is cores a sandbox.

    `bare` is the number of bare pods with the same runtime, whose use is subtracted from the sidecars'. With `images`
    each task has one of these images, and the pool's sandboxes are slots.
    """

    what: str
    phases: Annotated[list[Phase], Meta(min_length=1)]
    processes: Count = 1
    pool: Annotated[int, Meta(ge=0)] = 0
    cpu: Annotated[float, Meta(gt=0)] | None = None
    bare: Annotated[int, Meta(ge=0)] = 0
    images: Images | None = None
    baseline: Baseline = Baseline()

    def __post_init__(self) -> None:
        kept = False
        seen: set[str] = set()
        counted: set[str] = set()
        if len(by := {phase.rollouts.by for phase in self.phases if phase.rollouts is not None}) > 1:
            raise ValueError(f"all `rollouts` must be `by` one framework, not {' and '.join(sorted(by))}")
        for phase in self.phases:
            if phase.name in seen:
                raise ValueError(f"two phases are called {phase.name!r}")
            seen.add(phase.name)
            if phase.sandbox == "kept" and not kept:
                raise ValueError(f"phase {phase.name!r} wants kept sandboxes, and none before it keeps any")
            kept = kept or phase.sandbox == "keep"
            if phase.warm_up is not None and self.images is None:
                raise ValueError(f"phase {phase.name!r} warms images up, and the profile has no `images`")
            if phase.open is not None and phase.open.of not in {None, *counted}:
                wanted = "an earlier phase with `closed.tasks`"
                raise ValueError(
                    f"phase {phase.name!r}: `open.of` is {phase.open.of!r} and must name {wanted}"
                )
            if phase.closed is not None:
                self._each_process_has_some(phase, phase.closed)
                if phase.closed.tasks is not None:
                    counted.add(phase.name)
            if phase.in_one_process and self.processes > 1:
                raise ValueError(
                    f"phase {phase.name!r} needs `processes` 1, since one process runs all of it"
                )
            if phase.together > self.pool:
                wanted = f"at least {phase.together}, so that all may come from it"
                raise ValueError(f"phase {phase.name!r}: `pool` is {self.pool} and must be {wanted}")

    def _each_process_has_some(self, phase: Phase, load: Closed) -> None:
        """Require a caller and a task per process: without, tasks stay undone or no sandbox is kept."""
        for field, number in (("callers", load.callers), ("tasks", load.tasks)):
            if number is not None and number < self.processes:
                wanted = f"at least `processes` ({self.processes}), so that each has one"
                raise ValueError(f"phase {phase.name!r}: `closed.{field}` is {number} and must be {wanted}")
