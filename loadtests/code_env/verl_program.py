"""The process that scores rollouts with verl's own scorer, run by the Python that has it; serving.py has its protocol.

Of verl's wheel only the scorer's files are loaded. On `processes`, the same tests run as plain processes.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import subprocess
import sys
import sysconfig
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import requests

from loadtests.code_env.plain_processes import PATH
from loadtests.code_env.problems import Problem, problem, program_in
from loadtests.code_env.serving import Conversation
from loadtests.load.lag import LagWatch

FILE = os.path.join(sysconfig.get_path("purelib"), "verl/utils/reward_score/sandbox_fusion/__init__.py")
AT_ONCE = 64  # requests of all rollouts, as verl has by default
MEMORY_MB = 256  # less than the smallest sandbox has
TEST_SECONDS = 10


def scorer() -> Any:
    """Return verl's module."""
    spec = importlib.util.spec_from_file_location(
        "scorer", FILE, submodule_search_locations=[os.path.dirname(FILE)]
    )
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules["scorer"] = made
    spec.loader.exec_module(made)
    return made


class Rollouts:
    """Makes the rollouts of all phases, each in a thread."""

    def __init__(self, setup: dict[str, Any], scorer: Any) -> None:
        self._url = f"{setup['url']}/fusion/{setup['api_key']}/run_code"
        self._model = f"{setup['model']}/chat/completions"
        self._scorer = scorer
        self._permits = threading.Semaphore(AT_ONCE)

    def check(self) -> None:
        """Raise SystemExit if the server does not have the API."""
        answer = requests.post(self._url, json={}, timeout=60)
        if answer.status_code != 422:  # of a request without code
            raise SystemExit(
                f"the server answers {answer.status_code} to run_code: is `fusion` set? {answer.text[:200]}"
            )

    async def run(self, phase: dict[str, Any]) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        score = self._in_processes if phase["on"] == "processes" else self._in_sandboxes
        await asyncio.sleep(phase["start"] - time.monotonic())
        with ThreadPoolExecutor(phase["callers"]) as threads:
            async with LagWatch() as watch:
                records = await asyncio.gather(
                    *(
                        loop.run_in_executor(threads, partial(self._rollout, number, phase["tests"], score))
                        for number in range(phase["rollouts"])
                    )
                )
        return {"records": records, "cpu": watch.cpu, "wall": watch.wall, "lags": watch.lags}

    def _rollout(self, number: int, tests: int, score: Any) -> dict[str, Any]:
        asked = problem(number, tests=tests)
        began = time.monotonic()
        body = {"model": "scripted", "messages": [{"role": "user", "content": asked.question}]}
        answer = requests.post(self._model, json=body, timeout=600)
        text = answer.json()["choices"][0]["message"]["content"]
        inferred = time.monotonic()
        reward, errors = score(text, asked)
        ended = time.monotonic()
        return {
            "number": number,
            "sandbox": "",
            "error": errors,
            "expected": round(_share(number, tests), 6),
            "reward": round(reward, 6),
            "began": began,
            "inferred": inferred,
            "testing": inferred,
            "tested": ended,
            "ended": ended,
        }

    def _in_sandboxes(self, text: str, asked: Problem) -> tuple[float, str]:
        cases = {
            "inputs": [test["input"] for test in asked.tests],
            "outputs": [test["output"] for test in asked.tests],
        }
        reward, details = self._scorer.compute_score(
            self._url, self._permits, MEMORY_MB, text, cases, continuous=False, timeout=TEST_SECONDS
        )
        lost = [str(each) for each in details if each.get("status") in ("api_error", "sandbox_error")]
        return reward, (lost or [""])[0][:200]

    def _in_processes(self, text: str, asked: Problem) -> tuple[float, str]:
        code = program_in(text)

        def passed(test: dict[str, str]) -> bool:
            done = subprocess.run(
                ["python3", "-c", code],
                input=test["input"],
                capture_output=True,
                text=True,
                check=False,
                timeout=TEST_SECONDS,
                env={"PATH": PATH},
            )
            return done.returncode == 0 and done.stdout.strip() == test["output"].strip()

        with ThreadPoolExecutor(len(asked.tests)) as threads:
            results = list(threads.map(passed, asked.tests))
        return sum(results) / len(results), ""


def _share(number: int, tests: int) -> float:
    """Return what verl gives the scripted program: the share of its tests that pass."""
    return (1.0, 1.0, (tests - 1) / tests, 0.0)[number % 4]


async def main() -> None:
    logging.disable(logging.ERROR)
    conversation = Conversation()
    rollouts = Rollouts(await conversation.setup(), scorer())
    rollouts.check()
    await conversation.answer(rollouts.run)


if __name__ == "__main__":
    asyncio.run(main())
