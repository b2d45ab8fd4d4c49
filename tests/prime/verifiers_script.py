"""Rollouts of verifiers 0.1 in its sandbox environments, with a model that answers from a script. Run by the client's Python.

`verifiers_script.py bash python code` prints one JSON document, by environment.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import verifiers as vf  # type: ignore[import-not-found]
from datasets import Dataset  # type: ignore[import-not-found]
from scripted_model import serve  # type: ignore[import-not-found]

sys.path.insert(0, str(Path(__file__).parents[2]))
from loadtests.code_env.environment import CodeEnv
from loadtests.code_env.model import Model, serving
from loadtests.code_env.problems import problem

IMAGE = os.environ["SANDLOT_SCRIPT_IMAGE"]
# What the model does in its turns, before it answers with the last output.
TURNS = {
    "bash": [{"command": "echo $((6*7)) > /tmp/x"}, {"command": "sleep 300"}, {"command": "cat /tmp/x"}],
    "python": [{"code": "x = 6"}, {"code": "import os; x * 7"}],
}


def has_42(completion: Any) -> float:
    return float("42" in str(completion[-1]["content"] if isinstance(completion, list) else completion))


class Python(vf.PythonEnv):
    """Its image's name is fixed in the package; this hook is for changing the request."""

    def get_sandbox_request(self, state: Any) -> Any:
        return super().get_sandbox_request(state).model_copy(update={"docker_image": IMAGE})


def environment(kind: str) -> Any:
    given: dict[str, Any] = {
        "dataset": Dataset.from_list([{"question": "What is 6*7?", "answer": "42"}] * 2),
        "rubric": vf.Rubric(funcs=[has_42]),
        "labels": ["verifiers"],
        "memory_gb": 1,
    }
    if kind == "python":
        return Python(pip_install_packages="", **given)
    return vf.SandboxEnv(docker_image=IMAGE, timeout_per_command_seconds=10, **given)


class Losing(CodeEnv):
    """Of each group one sandbox ends too early: where `info` says so, while the model writes or during the tests."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.losing: set[int] = set()
        self.states: dict[str, Any] = {}

    async def setup_state(self, state: Any, **given: Any) -> None:
        first = state["info"]["number"] not in self.losing
        self.losing.add(state["info"]["number"])
        self.states[state["trajectory_id"]] = state
        state["lose"] = state["info"]["lose"] if first else ""
        state["ended"] = asyncio.Event()
        await super().setup_state(state, **given)

    async def create_sandbox(self, state: Any) -> None:
        await super().create_sandbox(state)
        if state["lose"] == "inference":
            await self.sandbox_client.delete(state["sandbox_id"])

    async def test(self, state: Any, test: dict[str, str]) -> bool:
        if state["lose"] == "tests" and test != state["info"]["tests"][0]:
            await state["ended"].wait()
        right = await super().test(state, test)
        if state["lose"] == "tests":
            await self.sandbox_client.delete(state["sandbox_id"])
            state["ended"].set()
        return right


async def code() -> list[dict[str, Any]]:
    """Two rollouts for each of four problems, whose first loses its sandbox in the first two problems."""
    asked = [problem(number, tests=3) for number in range(4)]
    rows = [
        {
            "question": each.question,
            "info": {"number": number, "tests": each.tests, "lose": ("inference", "tests", "", "")[number]},
        }
        for number, each in enumerate(asked)
    ]
    env = Losing(dataset=Dataset.from_list(rows), docker_image=IMAGE, labels=["verifiers"], memory_gb=1)
    async with serving(Model(mean=0.1, tests=3)) as model:
        results = await env.evaluate(
            vf.ClientConfig(api_base_url=model.url),
            "scripted",
            rollouts_per_example=2,
            state_columns=["trajectory_id"],
        )
    told = [
        {
            "number": each["info"]["number"],
            "reward": str(each["reward"]),
            # As a trainer reads it.
            "advantage": env.states[each["trajectory_id"]]["trajectory"][0]["advantage"],
            "error": (each["error"] or {}).get("error"),
            "left": sorted(env.active_sandboxes),
        }
        for each in results["outputs"]
    ]
    return sorted(told, key=lambda each: (each["number"], each["error"] is None))


async def main(kind: str) -> Any:
    if kind == "code":
        return await code()
    env = environment(kind)
    with serve(TURNS[kind]) as url:
        model = vf.ClientConfig(api_base_url=url)
        results = await env.evaluate(model, "scripted", num_examples=2, rollouts_per_example=1)
    outputs = results["outputs"]
    return {
        "rewards": [each["reward"] for each in outputs],
        "errors": [str(each.get("error")) for each in outputs],
        "said": [
            [str(turn["content"]) for turn in each["completion"] if turn["role"] == "tool"]
            for each in outputs
        ],
        "metrics": outputs[0]["metrics"],
        "left": sorted(env.active_sandboxes),
    }


if __name__ == "__main__":
    print(json.dumps({kind: asyncio.run(main(kind)) for kind in sys.argv[1:]}))
