"""Runs one task: creates or reuses a sandbox, runs the steps, records every call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from sandlot import AsyncClient, AsyncSandbox
from sandlot.errors import SandlotError
from sandlot.models import ExecResult

from loadtests.load.dataset import tag
from loadtests.load.events import TASK, Event, Journal, Outcome, judged
from loadtests.load.messages import Ledger, Setup
from loadtests.load.profile import Phase, Step
from loadtests.load.schedule import Popularity

Value = TypeVar("Value")
WAIT = 600.0  # timeout of a create in seconds: long, because time in the queue is what is measured
TOLD = 200  # characters of an error message
COLD_MEMORY = 480 << 20  # bytes that no warm sandbox has


class Over(Exception):
    """A step failed: the rest of the task is skipped."""

    def __init__(self, outcome: Outcome, verdict: str) -> None:
        super().__init__(verdict)
        self.outcome: Outcome = outcome
        self.verdict = verdict


@dataclass
class Actor:
    """Runs tasks for one generator process. `kept` are the sandboxes for later phases."""

    setup: Setup
    client: AsyncClient
    journal: Journal
    popularity: Popularity
    kept: list[AsyncSandbox] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    calls: int = 0
    _numbers: int = 0
    _answered: dict[str, set[int]] = field(default_factory=dict)

    async def task(self, phase: Phase, number: int, *, intended: float | None = None) -> None:
        """Run one task; failures go into its events. `intended` is a time of the monotonic clock."""
        begun = time.monotonic()
        image = self.popularity.pick(number, seed=self.setup.seed)
        run = Calls(self, phase, number, begun if intended is None else intended, image)
        outcome: Outcome = "ok"
        verdict = "done"
        try:
            await self._carry_out(run)
        except Over as over:
            outcome, verdict = over.outcome, over.verdict
        run.record(TASK, begun=begun, intended=run.intended, outcome=outcome, verdict=verdict)

    async def _carry_out(self, run: Calls) -> None:
        if run.phase.sandbox == "kept":
            if not self.kept:
                raise Over("infrastructure", "nothing_kept")
            await run.steps(self.kept[run.number // self.setup.processes % len(self.kept)], run.phase.steps)
            return
        box = await run.create()
        if run.phase.sandbox == "keep":
            await run.steps(box, run.phase.steps)
            self.kept.append(box)
            return
        try:
            await run.steps(box, run.phase.steps)
            if run.phase.ledger:
                await self._read_ledger(box, run.phase.ledger)
        finally:
            await run.call("delete", box.delete, sandbox=box.id)

    def next_number(self) -> int:
        """Return an id that is unique among all processes."""
        self._numbers += 1
        return self._numbers * self.setup.processes + self.setup.process

    def answered(self, box: AsyncSandbox, number: int) -> None:
        self._answered.setdefault(box.id, set()).add(number)

    async def read_ledgers(self, path: str) -> None:
        """Read the ledgers of the kept sandboxes."""
        await asyncio.gather(*(self._read_ledger(box, path) for box in self.kept))

    async def _read_ledger(self, box: AsyncSandbox, path: str) -> None:
        answered = self._answered.pop(box.id, set())
        try:
            lines = [int(line) for line in (await box.files.read(path)).split()]
        except (SandlotError, ValueError):
            self.ledger.unread += 1
            return
        ran = set(lines)
        self.ledger.recorded += len(lines)
        self.ledger.twice += len(lines) - len(ran)
        self.ledger.lost += len(answered - ran)


@dataclass
class Calls:
    """The calls of a running task. While `scheduled`, the latency of the first one counts from the scheduled time."""

    actor: Actor
    phase: Phase
    number: int
    intended: float
    image: int | None  # its number in the data set
    scheduled: bool = True

    def record(
        self,
        kind: str,
        *,
        begun: float,
        intended: float,
        outcome: Outcome,
        verdict: str,
        sandbox: str = "",
        message: str = "",
        result: object = None,
    ) -> None:
        ended, zero = time.monotonic(), self.actor.setup.zero
        event = Event(
            phase=self.phase.name,
            process=self.actor.setup.process,
            number=self.number,
            kind=kind,
            intended=round(intended - zero, 6),
            began=round(begun - zero, 6),
            ended=round(ended - zero, 6),
            outcome=outcome,
            verdict=verdict,
            sandbox=sandbox,
            message=message[:TOLD],
        )
        if isinstance(result, ExecResult):
            event.queued, event.cpu = result.usage.queued, result.usage.cpu
        elif isinstance(result, AsyncSandbox):
            event.image = "" if self.image is None else tag(self.image)
            event.sandbox, event.warm = result.id, result.info.pool_hit
            timings = result.info.timings
            event.queued, event.started = timings.get("queued", 0.0), timings.get("start", 0.0)
            event.claimed = timings.get("claim", 0.0)
        self.actor.journal.add(event)

    async def call(
        self,
        kind: str,
        make: Callable[[], Awaitable[Value]],
        *,
        sandbox: str = "",
        check: Callable[[Value], str] = lambda _: "",
    ) -> Value:
        """Make and record the call. `check` returns the error in the response. Raises Over."""
        self.actor.calls += 1
        begun = time.monotonic()
        intended, self.scheduled = (self.intended if self.scheduled else begun), False
        try:
            result = await make()
        except SandlotError as error:
            outcome, verdict = judged(error)
            message = str(error)
            self.record(
                kind,
                begun=begun,
                intended=intended,
                outcome=outcome,
                verdict=verdict,
                sandbox=sandbox,
                message=message,
            )
            raise Over(outcome, verdict) from error
        fault = check(result)
        verdict = result.verdict.value if isinstance(result, ExecResult) else "done"
        if fault:
            verdict = verdict if verdict not in ("done", "exited") else "unexpected"
        self.record(
            kind,
            begun=begun,
            intended=intended,
            outcome="wrong" if fault else "ok",
            verdict=verdict,
            sandbox=sandbox,
            message=fault,
            result=result,
        )
        if fault:
            raise Over("wrong", verdict)
        return result

    async def create(self) -> AsyncSandbox:
        setup, cold = self.actor.setup, self.phase.cold

        async def make() -> AsyncSandbox:
            return await AsyncSandbox.create(
                setup.image if self.image is None else setup.images[self.image],
                cpu=setup.cpu,
                memory=COLD_MEMORY if cold else None,
                pool=setup.cold_pool if cold else setup.pool,
                labels=(setup.label,),
                wait=WAIT,
                client=self.actor.client,
            )

        return await self.call("create", make)

    async def steps(self, box: AsyncSandbox, steps: list[Step]) -> None:
        for step in steps:
            if step.exec is not None:
                await self._execs(box, step)
            elif step.write is not None:
                await self._write(box, step)
            elif step.read is not None:
                await self._read(box, step)
            elif step.pause is not None:
                await asyncio.sleep(step.pause)
            else:
                for _ in range(step.repeat or 0):
                    await self.steps(box, step.steps)

    async def _execs(self, box: AsyncSandbox, step: Step) -> None:
        left = iter(range(step.times))

        async def lane() -> None:
            for _ in left:
                await self._exec(box, step)

        if step.at_once == 1:
            await lane()
            return
        lanes = [asyncio.create_task(lane()) for _ in range(step.at_once)]
        try:
            # The others continue after a failure: their results belong to the run.
            found = await asyncio.gather(*lanes, return_exceptions=True)
        finally:
            for task in lanes:
                task.cancel()
        for error in found:
            if error is not None:
                raise error

    async def _exec(self, box: AsyncSandbox, step: Step) -> None:
        number = self.actor.next_number()
        expected = step.expect and step.expect.replace("{number}", str(number))
        if expected and self.image is not None:
            expected = expected.replace("{image}", tag(self.image))

        async def make() -> ExecResult:
            assert step.exec is not None
            return await box.exec(step.exec, timeout=step.timeout, env={"NUMBER": str(number)})

        def check(result: ExecResult) -> str:
            if not result.ok:
                return f"exit code {result.exit_code}: {result.stderr[-TOLD // 2 :]}"
            return _difference(result.stdout, expected)

        await self.call("exec", make, sandbox=box.id, check=check)
        if self.phase.ledger:
            self.actor.answered(box, number)

    async def _write(self, box: AsyncSandbox, step: Step) -> None:
        assert step.write is not None
        path = step.write
        data = step.content.encode() if step.content is not None else b"x" * (step.bytes or 0)

        def check(size: int) -> str:
            return "" if size == len(data) else f"{size} bytes instead of {len(data)}"

        await self.call("write", lambda: box.files.write(path, data), sandbox=box.id, check=check)

    async def _read(self, box: AsyncSandbox, step: Step) -> None:
        assert step.read is not None
        path = step.read

        def check(data: bytes) -> str:
            return _difference(data.decode(errors="replace"), step.expect)

        await self.call("read", lambda: box.files.read(path), sandbox=box.id, check=check)


def _difference(had: str, expected: str | None) -> str:
    if expected is None or had == expected:
        return ""
    return f"{had[: TOLD // 3]!r} instead of {expected[: TOLD // 3]!r}"
