"""Evals over the provider, and example.py, in Inspect's environment with its mock model; writes what became of each to results.json."""

from __future__ import annotations

import asyncio
import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import anyio
from inspect_ai import Task, eval_async
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalLog
from inspect_ai.model import ChatMessage, ChatMessageTool, ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, Target, accuracy, scorer
from inspect_ai.solver import TaskState, generate, use_tools
from inspect_ai.tool import Tool, ToolInfo, tool
from inspect_ai.util import SandboxEnvironment, sandbox
from lost import kill_sidecar
from sandlot import AsyncSandbox, SandboxLost
from sandlot.integrations.inspect import SandlotSandboxEnvironment as Provider
from sandlot.integrations.inspect.errors import translated_end

MODEL = "mockllm/model"
attempts: list[str] = []


async def sandboxes() -> list[str]:
    return [info.id for info in await AsyncSandbox.list(labels=["inspect"])]


@tool
def lose_once() -> Tool:
    async def execute() -> str:
        """Lose the sandbox in the first attempt, as with its node."""
        attempts.append((await sandbox().connection()).container or "")
        if len(attempts) == 1:
            await sandbox().exec(["sh", "-c", "sleep 600.375 > /dev/null 2>&1 &"])
            await asyncio.to_thread(kill_sidecar, "600.375")
        return (await sandbox().exec(["echo", "done"])).stdout

    return execute


def raised(verdict: str) -> str:
    """The error of a call whose sandbox has ended with a verdict."""
    try:
        with translated_end():
            raise SandboxLost("it has ended", verdict=verdict)
    except Exception as error:
        return type(error).__name__


@tool
def run(command: str) -> Tool:
    async def execute() -> str:
        """Run the command."""
        done = await sandbox().exec(["sh", "-c", command], timeout=60)
        return f"{done.returncode} {done.stdout}"

    return execute


@scorer(metrics=[accuracy()])
def last_tool() -> Any:
    async def score(state: TaskState, target: Target) -> Score:
        used = [message for message in state.messages if isinstance(message, ChatMessageTool)]
        text = used[-1].error.message if used[-1].error else used[-1].text
        return Score(value=1 if target.text in text else 0, explanation=text)

    return score


async def evaluated(used: Tool, target: str, config: str | None, **options: Any) -> EvalLog:
    def answers(messages: list[ChatMessage], tools: list[ToolInfo], *_: object) -> ModelOutput:
        if messages[-1].role == "tool":
            output = ModelOutput.from_content(MODEL, "finished")
        else:
            output = ModelOutput.for_tool_call(MODEL, tools[0].name, {})
        output.usage = ModelUsage()  # otherwise the mock downloads a table to count tokens
        return output

    task = Task(
        dataset=[Sample(input="go", target=target, files={"given": "text"}, setup="cat given > ready")],
        solver=[use_tools(used), generate()],
        scorer=last_tool(),
        sandbox=("sandlot", config) if config else "sandlot",
    )
    model = get_model(MODEL, custom_outputs=answers, memoize=False)
    logs = await eval_async(task, model=model, log_dir="logs", **options)
    return logs[0]


def told(log: EvalLog) -> dict[str, Any]:
    assert log.samples, log.error
    sample = log.samples[0]
    return {
        "status": log.status,
        "error": sample.error.message if sample.error else None,
        "retries": [error.message for error in sample.error_retries or ()],
        "scores": {name: [score.value, score.explanation] for name, score in (sample.scores or {}).items()},
    }


async def cancelled_inits() -> int:
    """Cancel the start of a sample at different moments."""
    count = 0
    for wait in (0.001, 0.01, 0.03, 0.1):
        with anyio.move_on_after(wait) as scope:
            made = await Provider.sample_init("cut", "host", {})
            with anyio.CancelScope(shield=True):
                await Provider.sample_cleanup("cut", "host", made, True)
        count += scope.cancelled_caught
    return count


async def started() -> list[str]:
    """Who runs a service's command, and where; then the contents of files of root's, one of which anyone may write."""
    made = await Provider.sample_init("started", "started-compose.yaml", {})
    ran = await made["box"].exec(["sh", "-c", "until test -s who; do sleep 0.05; done; cat who"], timeout=30)
    make = "mkdir /tmp/roots && cd /tmp/roots && echo > open && echo > closed && chmod 666 open"
    assert (await made["box"].exec(["sh", "-c", make], user="root")).success
    await made["box"].write_file("/tmp/roots/open", "written")
    refused = ""
    try:
        await made["box"].write_file("/tmp/roots/closed", "written")
    except PermissionError as error:
        refused = error.strerror or ""
    files = await made["box"].exec(["sh", "-c", "cat /tmp/roots/*"])
    await Provider.sample_cleanup("started", "started-compose.yaml", made, False)
    return [ran.stdout, files.stdout, refused]


NAMES = ("/tmp/", "/tmp/d/.", "..", "", "a\0b", "a\ud800b", "n" * 5000)


async def odd_files(box: SandboxEnvironment) -> dict[str, list[str]]:
    """The classes of the errors of writing and reading files whose names a model made up."""
    calls = {
        "write": [lambda name=name: box.write_file(name, "x") for name in NAMES],
        "read": [lambda name=name: box.read_file(name) for name in NAMES],
        "contents": [lambda: box.write_file("/tmp/x", "a\ud800b")],
    }
    found: dict[str, list[str]] = {name: [] for name in calls}
    for name, each in calls.items():
        for call in each:
            try:
                await call()
            except Exception as error:
                found[name].append(type(error).__name__)
    return found


async def main(found: dict[str, Any]) -> None:
    found["lost"] = told(await evaluated(lose_once(), "done", None))
    attempts.clear()
    found["retried"] = told(await evaluated(lose_once(), "done", None, retry_on_error=1))
    hog = run("cat ready; tail /dev/zero")
    found["oom"] = told(await evaluated(hog, "137 text", "small-compose.yaml"))
    found["ends"] = {verdict: raised(verdict) for verdict in ("oom", "node_lost", "deleted")}
    found["started"] = await started()
    found["cancelled"] = await cancelled_inits()
    kept = (await Provider.sample_init("kept", None, {}))["default"]
    found["command"] = (await kept.connection(user="nobody")).command
    assert (await kept.exec(["true"])).success
    spoilt = [kept.exec(["echo", "a\ud800b"]), kept.exec(["true"], cwd="/" + "n/" * 4000)]
    found["spoilt"] = [(await each).returncode for each in spoilt]
    found["odd"] = await odd_files(kept)
    await Provider.cli_cleanup((await kept.connection()).container)
    found["left"] = await sandboxes()


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    example = runpy.run_path("example.py")["log"]
    score = example.results.scores[0].metrics["accuracy"].value
    results: dict[str, Any] = {"example": [example.status, score]}
    asyncio.run(main(results))
    Path("results.json").write_text(json.dumps(results))
