"""The process that makes rollouts on verifiers, run by the Python that has them; serving.py has its protocol."""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import Any

import verifiers as vf
from datasets import Dataset
from verifiers.utils.threaded_sandbox_client import ThreadedAsyncSandboxClient

from loadtests.code_env.environment import CodeEnv
from loadtests.code_env.plain_processes import PlainProcesses
from loadtests.code_env.problems import problem
from loadtests.code_env.serving import Conversation
from loadtests.load.lag import LagWatch


class Measured(CodeEnv):
    """Notes when each part of a rollout began and ended, by the monotonic clock."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.records: list[dict[str, Any]] = []

    async def setup_state(self, state: Any, **given: Any) -> None:
        state["times"] = {"began": time.monotonic()}
        await super().setup_state(state, **given)

    async def create_sandbox(self, state: Any) -> None:
        await super().create_sandbox(state)
        state["times"]["created"] = time.monotonic()

    async def post_rollout(self, state: Any) -> None:
        state["times"]["inferred"] = time.monotonic()
        await super().post_rollout(state)

    async def run_tests(self, state: Any) -> None:
        state["times"]["testing"] = time.monotonic()
        await super().run_tests(state)
        state["times"]["tested"] = time.monotonic()

    @vf.cleanup(priority=-100)
    async def note(self, state: Any) -> None:
        """Record the rollout, after its sandbox is deleted."""
        self.records.append(
            {
                "number": state["info"]["number"],
                "sandbox": state.get("sandbox_id") or "",
                "error": repr(state["error"].__cause__ or state["error"]) if state["error"] else "",
                "expected": state["info"]["reward"],
                "ended": time.monotonic(),
                **state["times"],
            }
        )


def environment(setup: dict[str, Any], phase: dict[str, Any], client: Any) -> Measured:
    """Make one with the phase's problems; its client of sandboxes is that of the whole run, as in a long training."""
    rows = [problem(number, tests=phase["tests"]) for number in range(phase["rollouts"])]
    made = Measured(
        dataset=Dataset.from_list(
            [
                {
                    "question": row.question,
                    "info": {"number": number, "tests": row.tests, "reward": row.reward},
                }
                for number, row in enumerate(rows)
            ]
        ),
        docker_image=setup["image"],
        cpu_cores=setup["cpu"],
        memory_gb=setup["memory_gb"],
        disk_size_gb=setup["disk_gb"],
        labels=[setup["label"], phase["name"]],
    )
    made.sandbox_client.teardown()
    made.sandbox_client = PlainProcesses() if phase["on"] == "processes" else client
    return made


async def rollouts(setup: dict[str, Any], phase: dict[str, Any], client: Any) -> dict[str, Any]:
    """Run a phase to the end of its last rollout."""
    env = environment(setup, phase, client)
    await asyncio.sleep(phase["start"] - time.monotonic())
    async with LagWatch() as watch:
        found = await env.evaluate(
            vf.ClientConfig(api_base_url=setup["model"]),
            "scripted",
            num_examples=phase["rollouts"],
            max_concurrent=phase["callers"],
            independent_scoring=True,
        )
    rewards = {each["info"]["number"]: each["reward"] for each in found["outputs"]}
    for record in env.records:
        reward = rewards[record["number"]]
        record["reward"] = None if math.isnan(reward) else reward
    return {"records": env.records, "cpu": watch.cpu, "wall": watch.wall, "lags": watch.lags}


async def main() -> None:
    # Lost sandboxes are what a phase is about; their warnings would fill the log.
    logging.disable(logging.ERROR)
    conversation = Conversation()
    setup = await conversation.setup()
    client = ThreadedAsyncSandboxClient(max_workers=setup["threads"])
    try:
        await conversation.answer(lambda phase: rollouts(setup, phase, client))
    finally:
        client.teardown()


if __name__ == "__main__":
    asyncio.run(main())
