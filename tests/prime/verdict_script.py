"""Runs commands as a published client does, and says what its user gets. Run by the client's own Python.

Reads a line of JSON for each command, `{"sandbox", "command", "timeout"}`, and answers each with a line: `result CODE`,
or the kind of the error. With the argument `verifiers` a command is a turn of its SandboxEnv, and the answer says
whether the rollout ends as one that counts for nothing (`masked`) or goes on with the text.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

Run = Callable[[str, str, int], Awaitable[str]]


def of_the_client() -> Run:
    import prime_sandboxes as sdk  # type: ignore[import-not-found]

    client = sdk.AsyncSandboxClient()

    async def run(sandbox: str, command: str, timeout: int) -> str:
        try:
            answer = await client.execute_command(sandbox, command, timeout=timeout)
        except Exception as error:
            return type(error).__name__
        return f"result {answer.exit_code}"

    return run


def of_verifiers() -> Run:
    import verifiers as vf  # type: ignore[import-not-found]
    from datasets import Dataset  # type: ignore[import-not-found]

    questions = Dataset.from_list([{"question": "?", "answer": "!"}])
    env = vf.SandboxEnv(dataset=questions, rubric=vf.Rubric(), docker_image="host")

    async def run(sandbox: str, command: str, timeout: int) -> str:
        env.timeout_per_command_seconds = timeout
        state: dict[str, Any] = {"ready": True, "command_execution_times": []}
        try:
            await env.bash(command, sandbox, state)
        except Exception as error:
            return "masked" if isinstance(error, tuple(env.stop_errors)) else type(error).__name__
        return "counts"

    return run


async def main() -> None:
    run = of_verifiers() if sys.argv[1:] == ["verifiers"] else of_the_client()
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        asked = json.loads(line)
        print(await run(asked["sandbox"], asked["command"], asked["timeout"]), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
