"""harbor's side of the load test: an agent that writes what the scripted model answers, and Sandlot's environment, measured."""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownVariableType=false

from __future__ import annotations

import tempfile
import time
from collections.abc import Awaitable
from typing import Any, TypeVar

import httpx
from harbor.agents.base import BaseAgent
from sandlot import AsyncSandbox
from sandlot.integrations.harbor import SandlotEnvironment

from loadtests.code_env.problems import program_in

Value = TypeVar("Value")
PROGRAM = "/tmp/solution.py"
TIMES: dict[str, dict[str, Any]] = {}  # of each trial, by its name


class Scripted(BaseAgent):
    """Asks the model once, and uploads the program that it answers."""

    def __init__(self, *args: Any, trial: str, model: str, **given: Any) -> None:
        super().__init__(*args, **given)
        self._times = TIMES[trial]
        self._model = model

    @staticmethod
    def name() -> str:
        return "scripted"

    def version(self) -> str:
        return "1"

    async def setup(self, environment: Any) -> None:
        return

    async def run(self, instruction: str, environment: Any, context: Any) -> None:
        self._times["asked"] = time.monotonic()
        body = {"model": "scripted", "messages": [{"role": "user", "content": instruction}]}
        async with httpx.AsyncClient(timeout=600, verify=False) as client:
            answer = await client.post(f"{self._model}/chat/completions", json=body)
        self._times["inferred"] = self._times["testing"] = time.monotonic()
        text = program_in(answer.json()["choices"][0]["message"]["content"])
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write(text)
            file.flush()
            await environment.upload_file(file.name, PROGRAM)


class Measured(SandlotEnvironment):
    """Adds up the time in which a trial is in calls of Sandlot's environment, one of which may call another."""

    def __init__(self, *args: Any, trial: str, **given: Any) -> None:
        self._times = TIMES[trial]
        self._depth = 0
        super().__init__(*args, **given)

    async def _timed(self, call: Awaitable[Value]) -> Value:
        began = time.monotonic()
        self._depth += 1
        try:
            return await call
        finally:
            self._depth -= 1
            if not self._depth:
                self._times["in_sandlot"] += time.monotonic() - began

    async def start(self, force_build: bool) -> None:
        await self._timed(super().start(force_build))
        self._times["created"] = time.monotonic()

    async def _prepare(self, box: AsyncSandbox) -> None:
        self._times["sandbox"] = (
            box.id
        )  # now: a sandbox that is killed before it is prepared explains its trial's end
        await super()._prepare(box)

    async def stop(self, delete: bool) -> None:
        await self._timed(super().stop(delete))

    async def exec(self, *args: Any, **given: Any) -> Any:
        return await self._timed(super().exec(*args, **given))

    async def upload_file(self, *args: Any, **given: Any) -> None:
        await self._timed(super().upload_file(*args, **given))

    async def upload_dir(self, *args: Any, **given: Any) -> None:
        await self._timed(super().upload_dir(*args, **given))

    async def download_file(self, *args: Any, **given: Any) -> None:
        await self._timed(super().download_file(*args, **given))

    async def download_dir(self, *args: Any, **given: Any) -> None:
        await self._timed(super().download_dir(*args, **given))
