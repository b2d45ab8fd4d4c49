"""The process that runs harbor's trials, run by the Python that has harbor; serving.py has its protocol."""

# pyright: reportMissingImports=false, reportUnknownVariableType=false

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import Any

from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
from harbor.trial.queue import TrialQueue

from loadtests.code_env import harbor_parts
from loadtests.code_env.harbor_parts import PROGRAM, TIMES
from loadtests.code_env.problems import Problem, problem
from loadtests.code_env.serving import Conversation
from loadtests.load.lag import LagWatch

IDLE_MINUTES = 10  # after which a sandbox of a process that was killed ends
# All tests at once; the outputs come with the verifier's files, after the agent.
TEST = f"""#!/bin/bash
for input in /tests/*.in; do
    name=$(basename $input .in)
    (python3 {PROGRAM} < $input > /tmp/$name.out 2>/dev/null && diff -q /tmp/$name.out /tests/$name.expected > /dev/null && touch /tmp/$name.passed) &
done
wait
passed=$(ls /tmp/*.passed 2>/dev/null | wc -l)
if [ $passed -eq $(ls /tests/*.in | wc -l) ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""


def write_task(folder: Path, asked: Problem, setup: dict[str, Any]) -> None:
    """Write a task as harbor reads it, with the sizes of the pool."""
    texts = {
        "task.toml": 'schema_version = "1.4"\n[verifier]\ntimeout_sec = 300\n[agent]\ntimeout_sec = 3600\n'
        f'[environment]\ndocker_image = "{setup["image"]}"\ncpus = {setup["cpu"]:g}\n'
        f"memory_mb = {round(setup['memory_gb'] * 1024)}\nstorage_mb = {round(setup['disk_gb'] * 1024)}\n",
        "instruction.md": asked.question,
        "tests/test.sh": TEST,
    }
    for number, test in enumerate(asked.tests):
        texts[f"tests/{number}.in"] = test["input"]
        texts[f"tests/{number}.expected"] = test["output"]
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    (folder / "environment").mkdir()
    (folder / "tests/test.sh").chmod(0o755)


def config(setup: dict[str, Any], phase: dict[str, Any], number: int) -> TrialConfig:
    name = f"{phase['name']}-{number}"
    folder = Path.home() / phase["name"]
    asked = problem(number, tests=phase["tests"])
    write_task(folder / f"problem-{number}", asked, setup)
    TIMES[name] = {"number": number, "expected": asked.reward, "sandbox": "", "in_sandlot": 0.0}
    parts = harbor_parts.__name__
    return TrialConfig(
        task=TaskConfig(path=folder / f"problem-{number}"),
        trial_name=name,
        trials_dir=folder / "trials",
        agent=AgentConfig(import_path=f"{parts}:Scripted", kwargs={"trial": name, "model": setup["model"]}),
        environment=EnvironmentConfig(
            import_path=f"{parts}:Measured",
            kwargs={
                "trial": name,
                "pool": setup["pool"],
                "run": f"{setup['label']}-{phase['name']}",
                "idle_timeout_minutes": IDLE_MINUTES,
            },
        ),
    )


async def rollouts(setup: dict[str, Any], phase: dict[str, Any]) -> dict[str, Any]:
    """Run a phase to the end of its last trial; none is repeated."""
    configs = [config(setup, phase, number) for number in range(phase["rollouts"])]
    queue = TrialQueue(phase["callers"])

    async def began(event: Any) -> None:
        TIMES[event.config.trial_name]["began"] = time.monotonic()

    queue.on_trial_started(began)

    async def one(config: TrialConfig) -> dict[str, Any]:
        result = await queue.submit(config)
        times = TIMES.pop(config.trial_name)
        times["ended"] = time.monotonic()
        if lost := result.exception_info:
            told = {"reward": None, "error": f"{lost.exception_type}: {lost.exception_message}"[:200]}
        else:
            told = {"reward": result.verifier_result.rewards["reward"], "error": "", "tested": times["ended"]}
        return {"inferred": times["ended"], **times, **told}

    await asyncio.sleep(phase["start"] - time.monotonic())
    async with LagWatch() as watch:
        records = await asyncio.gather(*map(one, configs))
    return {"records": records, "cpu": watch.cpu, "wall": watch.wall, "lags": watch.lags}


async def main() -> None:
    logging.disable(logging.CRITICAL)
    conversation = Conversation()
    setup = await conversation.setup()
    await conversation.answer(lambda phase: rollouts(setup, phase))


if __name__ == "__main__":
    asyncio.run(main())
