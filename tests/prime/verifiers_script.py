"""Rollouts of verifiers 0.1 in its sandbox environments, with a model that answers from a script. Run by the client's Python.

`verifiers_script.py bash python` prints one JSON document, by environment.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import verifiers as vf  # type: ignore[import-not-found]
from datasets import Dataset  # type: ignore[import-not-found]
from scripted_model import serve  # type: ignore[import-not-found]

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


async def main(kind: str) -> dict[str, Any]:
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
