"""Grades one program in one sandbox: create, write, run the tests with a timeout, delete."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from dataclasses import asdict, dataclass, field
from typing import Any

from sandlot import AsyncClient, AsyncSandbox
from sandlot.errors import ApiError, AuthError, BadRequest, ConnectionFailed, SandboxLost, WaitTimeout
from sandlot.models import ExecResult

from sandlot_grade.errors import GradeError
from sandlot_grade.work import Outcome, Rollout, Timings

PROGRAM = "/tmp/program.py"
LOST = (SandboxLost, ConnectionFailed, WaitTimeout, ApiError)
NOT_STARTED = (126, 127)  # exit codes for a program that cannot be executed or does not exist
BY_CODE = ("oom", "init_killed")  # verdicts of a sandbox that its program caused


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a rollout: seconds of the run, bytes of memory and disk, processes, cores."""

    timeout: float = 10.0
    memory: int = 512 << 20
    disk: int = 256 << 20
    pids: int = 256
    cpu: float = 1.0

    def sizes(self) -> dict[str, Any]:
        """Return those of a sandbox or a pool, as arguments of the SDK's calls."""
        return {"cpu": self.cpu, "memory": self.memory, "disk": self.disk, "pids": self.pids}


def key(rollout: Rollout, *, limits: Limits, image: str, network: str) -> str:
    """Return a key of the program and its environment; a result is reused only for the same key."""
    content = (rollout.code, rollout.test, rollout.entry_point, asdict(limits), image, network)
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


@dataclass(slots=True)
class PythonStarts:
    """Whether `python3` has been checked to start in the image."""

    known: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True, slots=True)
class Grader:
    """Grades rollouts with one client. `pool` names a warm pool of the same limits; `image` has `python3`."""

    client: AsyncClient
    limits: Limits = Limits()
    image: str = "host"
    pool: str | None = None
    labels: tuple[str, ...] = ()
    network: str = "none"
    attempts: int = 3
    epoch: float = 0.0
    python: PythonStarts = field(default_factory=PythonStarts)

    async def grade(self, rollout: Rollout) -> Outcome:
        """Grade a rollout; return the outcome of the first attempt that the infrastructure did not lose.

        Raises BadRequest or AuthError if the server rejects what all rollouts request, and GradeError if the image has
        no python3.
        """
        lost: list[str] = []
        for attempt in range(1, self.attempts + 1):
            try:
                return await self._attempt(rollout, attempt=attempt, lost=tuple(lost))
            except (BadRequest, AuthError):
                raise
            except LOST as error:
                if isinstance(error, SandboxLost) and error.verdict in BY_CODE:
                    return self._ended_by_code(rollout, error, attempt=attempt, lost=tuple(lost))
                lost.append(f"{type(error).__name__}: {error}")
            if attempt < self.attempts:
                await asyncio.sleep(0.2 * 2**attempt)
        return Outcome(
            index=rollout.index,
            task_id=rollout.task_id,
            kind=rollout.kind,
            key=self._key(rollout),
            result="lost",
            message=lost[-1],
            attempts=self.attempts,
            lost=tuple(lost),
        )

    def _key(self, rollout: Rollout) -> str:
        return key(rollout, limits=self.limits, image=self.image, network=self.network)

    def _ended_by_code(
        self, rollout: Rollout, error: SandboxLost, *, attempt: int, lost: tuple[str, ...]
    ) -> Outcome:
        """Return the outcome of a program that ended its whole sandbox; a second attempt would end alike."""
        return Outcome(
            index=rollout.index,
            task_id=rollout.task_id,
            kind=rollout.kind,
            key=self._key(rollout),
            result=error.verdict,
            verdict=error.verdict,
            message=str(error),
            attempts=attempt,
            lost=lost,
        )

    async def _attempt(self, rollout: Rollout, *, attempt: int, lost: tuple[str, ...]) -> Outcome:
        program = rollout.program()
        begun = time.monotonic()
        box = await self._sandbox()
        created = time.monotonic()
        async with box:
            await box.files.write(PROGRAM, program.source.encode())
            written = time.monotonic()
            result = await box.exec(["python3", PROGRAM], timeout=self.limits.timeout, cwd="/tmp")
            ran = time.monotonic()
        deleted = time.monotonic()
        if result.verdict == "exited" and result.exit_code in NOT_STARTED:
            # Without this check every candidate would count as "failed".
            if result.message is not None:
                raise self._no_python(result.message)
            await self._look_for_python()
        passed = program.passed(
            verdict=result.verdict,
            exit_code=result.exit_code,
            stdout=result.stdout,
            truncated=result.truncated,
        )
        return Outcome(
            index=rollout.index,
            task_id=rollout.task_id,
            kind=rollout.kind,
            key=self._key(rollout),
            result="passed" if passed else _grade_of(result),
            verdict=str(result.verdict),
            exit_code=result.exit_code,
            signal=result.signal,
            message=result.message,
            output_bytes=result.stdout_bytes + result.stderr_bytes,
            stderr_tail=result.stderr[-400:],
            cpu=result.usage.cpu,
            peak_memory=result.usage.peak_memory,
            queued=result.usage.queued,
            pool_hit=box.info.pool_hit,
            attempts=attempt,
            lost=lost,
            notes=box.info.notes,
            timings=Timings(
                started=begun - self.epoch,
                create=created - begun,
                write=written - created,
                exec=ran - written,
                delete=deleted - ran,
                whole=deleted - begun,
            ),
        )

    async def _sandbox(self) -> AsyncSandbox:
        return await AsyncSandbox.create(
            self.image,
            pool=self.pool,
            labels=self.labels,
            network=self.network,
            timeout=self.limits.timeout + 600,
            client=self.client,
            **self.limits.sizes(),
        )

    async def _look_for_python(self) -> None:
        """Check, once and in a new sandbox, that `python3` runs programs at all. Raises GradeError.

        A broken `python3`, such as a script that starts a missing one, has the exit code of a missing program. A new
        sandbox is needed because the program may have removed the image's own.
        """
        async with self.python.lock:
            if self.python.known:
                return
            async with await self._sandbox() as box:
                result = await box.exec(["python3", "-c", "pass"], timeout=self.limits.timeout, cwd="/tmp")
            if result.verdict == "exited" and result.exit_code in NOT_STARTED:
                said = (result.message or result.stderr).strip().rpartition("\n")[2][-400:]
                raise self._no_python(
                    f"python3 ends with exit code {result.exit_code}: {said or 'no message'}"
                )
            self.python.known = True

    def _no_python(self, why: str) -> GradeError:
        return GradeError(
            f"cannot run programs in image {self.image!r}: {why}; "
            "pass --image an image with python3 on its PATH"
        )


def _grade_of(result: ExecResult) -> str:
    if result.verdict != "exited":
        return str(result.verdict)
    return "output_limit" if result.truncated else "failed"
