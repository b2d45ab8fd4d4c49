"""What tinker-cookbook's harbor recipe does with lost sandboxes, after the lines of the page, whose file is the argument.

The recipe's group of environments and RetryOnFailure are files of the wheel. In the place of what imports PyTorch are the
few names that they use, and an environment that ends as one does whose model has no tokens left: without a grade.
"""

from __future__ import annotations

import asyncio
import importlib
import runpy
import sys
import sysconfig
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import sandlot
from lost import kill_sidecar
from sandlot.integrations.tinker_cookbook import raise_losses, sandbox_factory

LABEL = "tinker-recipe"


class Tool:
    """In place of the decorator of a tool's method."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __get__(self, owner: object, _: type) -> Callable[..., Any]:
        bound: Any = partial(self._function, owner)
        bound.to_spec = dict
        return bound


class Env:
    """Runs one command by its tool, whose exception the model would read."""

    def __init__(self, *, tools: list[Callable[..., Any]], **_: object) -> None:
        self._tools = tools

    async def step(self, command: str) -> str:
        try:
            return await self._tools[0](command)
        except Exception as error:
            return str(error)


async def rollout(commands: list[str], env: Env) -> str:
    return await env.step(commands.pop(0))


def in_place_of(name: str, **content: object) -> None:
    module = types.ModuleType(f"tinker_cookbook.{name}")
    vars(module).update(content)
    sys.modules[module.__name__] = module


renderer = types.SimpleNamespace(create_conversation_prefix_with_tools=lambda **_: [])
in_place_of("renderers", get_renderer=lambda *_: renderer)
in_place_of("renderers.base", Message=dict, Renderer=object)
in_place_of("tokenizer_utils", get_tokenizer=str)
in_place_of("completers", TokenCompleter=list)
in_place_of("rl", __path__=[f"{sysconfig.get_path('purelib')}/tinker_cookbook/rl"])
names = ("Env", "EnvGroupBuilder", "RLDataset", "RLDatasetBuilder", "RolloutError", "Trajectory")
kinds = {name: type(name, (), {}) for name in names}
in_place_of("rl.types", **(kinds | {"RolloutError": types.SimpleNamespace}))
in_place_of("rl.rollouts", do_single_rollout=rollout)
in_place_of("sandbox.modal_sandbox", ModalSandbox=object)
in_place_of("tool_use", ToolResult=str, simple_tool_result=str, tool=Tool, build_agent_tool_env=Env)
in_place_of("tool_use.agent_tool_message_env", RewardFn=object)
runpy.run_path(sys.argv[1])
harbor_env = importlib.import_module("tinker_cookbook.recipes.harbor_rl.harbor_env")
strategies = importlib.import_module("tinker_cookbook.rl.rollout_strategy")


async def group(**arguments: Any) -> Any:
    """A group of two environments, made as the recipe makes it."""
    task = harbor_env.HarborTask("task", "Do it.", Path("task"))
    built = harbor_env.HarborDatasetBuilder(
        tasks=[task], batch_size=1, group_size=2, model_name="model", renderer_name="renderer", **arguments
    )
    dataset, _ = await built()
    return dataset.get_batch(0)[0]


async def a_lost_trajectory_runs_again() -> None:
    builder = await group(sandbox_factory=sandbox_factory("host", labels=[LABEL], memory="256MiB"))
    commands = ["exec -a lost-recipe sleep 600", "echo second", "echo third"]
    running = asyncio.create_task(strategies.RetryOnFailure().execute(builder, commands))
    await asyncio.to_thread(kill_sidecar, "lost-recipe")
    result = await running
    assert [error.error_type for error in result.errors] == ["SandboxTerminatedError"]
    assert ["second" in result.trajectories[0], "third" in result.trajectories[1]] == [True, True]
    await builder.cleanup()
    assert await sandlot.AsyncSandbox.list(labels=[LABEL]) == []


async def a_sandbox_of_another_factory_is_refused() -> None:
    try:
        raise_losses([Env(tools=[])], [object()])
        raise AssertionError("it was taken")
    except TypeError as error:
        assert "sandbox_factory" in str(error)


asyncio.run(a_lost_trajectory_runs_again())
asyncio.run(a_sandbox_of_another_factory_is_refused())
