"""Starts the generator processes, assigns each its share of a phase and collects the results."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from loadtests.code_env.messages import Setup as RolloutSetup
from loadtests.load.exec_messages import ExecSetup
from loadtests.load.messages import Assignment, Done, Setup
from loadtests.load.profile import Phase

ROOT = Path(__file__).resolve().parents[2]
LINE = 64 << 20  # bytes: an hour's lags are one line
STOP_SECONDS = 20.0


def program(module: str) -> tuple[str, ...]:
    """Return the command of a module that generates load."""
    return sys.executable, "-m", module


class GeneratorFailed(Exception):
    """A generator process exited unexpectedly; the message is the end of its output."""


class Generators:
    """The generator processes: `async with` starts and ends them."""

    def __init__(
        self,
        setups: Sequence[Setup | RolloutSetup | ExecSetup],
        *,
        log: Path,
        command: Sequence[str] = program("loadtests.load.worker"),
        env: Mapping[str, str] | None = None,
    ) -> None:
        """One process for each setup; `env` replaces this process's environment."""
        self._setups = setups
        self._log = log
        self._command = command
        self._env = env
        self._processes: list[asyncio.subprocess.Process] = []

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    async def __aenter__(self) -> Generators:
        try:
            for _ in self._setups:
                self._processes.append(await self._started())
            async with asyncio.TaskGroup() as group:
                for process, setup in zip(self._processes, self._setups, strict=True):
                    # Its response means that all is imported: a phase that begins earlier delays its first tasks.
                    group.create_task(self._one(process, msgspec.json.encode(setup) + b"\n"))
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stop()

    async def run(self, phase: Phase, *, start: float) -> list[Done]:
        """Run a phase in all processes from `start` on (monotonic clock). Raises GeneratorFailed."""
        line = msgspec.json.encode(Assignment(phase=phase, start=start)) + b"\n"
        return [msgspec.json.decode(answer, type=Done) for answer in await self.ask(line)]

    async def ask(self, line: bytes) -> list[bytes]:
        """Send a line to all processes and return the line that each answers. Raises GeneratorFailed."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._one(process, line)) for process in self._processes]
        return [task.result() for task in tasks]

    async def _started(self) -> asyncio.subprocess.Process:
        with self._log.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=self._env,
                cwd=ROOT,
                limit=LINE,
                start_new_session=True,  # Ctrl-C reaches only the command, which then ends them in order
            )

    async def _one(self, process: asyncio.subprocess.Process, line: bytes) -> bytes:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(line)
        with contextlib.suppress(ConnectionError):
            await process.stdin.drain()
        answer = await process.stdout.readline()
        if not answer:
            await process.wait()
            words = self._log.read_text(errors="replace")[-1500:].strip()
            raise GeneratorFailed(
                f"a generator process ended with {process.returncode}: {words or 'it said nothing'}"
            )
        return answer

    async def _stop(self) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self._processes:
            try:
                await asyncio.wait_for(process.wait(), STOP_SECONDS)
            except TimeoutError:
                process.kill()
                await process.wait()
