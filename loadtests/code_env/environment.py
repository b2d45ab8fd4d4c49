"""A code environment on unmodified verifiers 0.1: it hides the sandbox's start behind the model, and masks what was lost.

Run by a Python that has `verifiers==0.1.14` and `prime-sandboxes==0.2.36`. It imports nothing of this repository, so it
may be copied.
"""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

import asyncio
import math
import re
import shlex
from typing import Any

import httpx
import verifiers as vf
from prime_sandboxes import CommandTimeoutError

MOST_TESTS = 15
FOLDER, FILE = "/tmp", "solution.py"
_FENCED = re.compile(r"```(?:python)?\n(.*?)```", re.DOTALL)


def program(completion: Any) -> str:
    """Return the last fenced block of the model's answer, else the answer."""
    answer = str(completion[-1].content) if completion else ""
    return (_FENCED.findall(answer) or [answer])[-1]


def mask(state: Any) -> None:
    """Take the completion out of the gradient: for a trainer that does not skip rollouts with an error."""
    for step in state["trajectory"]:
        step["advantage"] = 0.0
        if tokens := step["tokens"]:
            tokens["completion_mask"] = [0] * len(tokens["completion_mask"])


async def passed(state: Any) -> float:
    """1 if every test passed. NaN, not 0, where nobody knows: verifiers turns an exception of a reward into 0."""
    return math.nan if state["error"] is not None else float(bool(state["passed"]) and all(state["passed"]))


class Scores(vf.Rubric):
    """Leaves masked rollouts out of their group's mean."""

    async def score_group(self, states: list[Any]) -> None:
        if kept := [state for state in states if state["error"] is None]:
            await super().score_group(kept)
        for state in states:
            if state["error"] is not None:
                state["reward"], state["advantage"], state["metrics"] = math.nan, 0.0, {"passed": math.nan}


class CodeEnv(vf.SandboxEnv):
    """One turn: the model writes a program, and up to `most_tests` of its problem run at once in the rollout's sandbox.

    A row's `info` has `tests`, a list of `{"input", "output"}`. The outputs never enter the sandbox.
    """

    def __init__(self, *, most_tests: int = MOST_TESTS, timeout_per_command_seconds: int = 10, **given: Any):
        given.setdefault("rubric", Scores(funcs=[passed]))
        super().__init__(max_turns=1, timeout_per_command_seconds=timeout_per_command_seconds, **given)
        self.most_tests = most_tests
        self.remove_tool(self.bash)

    async def setup_state(self, state: Any, **given: Any) -> None:
        """Begin to create the sandbox; the first inference does not wait for it."""
        # The rubric of SandboxEnv reads these also where no sandbox could be created.
        state["sandbox_state"] = {"ready": False, "ready_wait_time": 0.0, "command_execution_times": []}
        state["creating"] = asyncio.create_task(self.create_sandbox(state))

    async def create_sandbox(self, state: Any) -> None:
        await super().setup_state(state)
        await self._wait_for_sandbox_ready(state["sandbox_state"], state["sandbox_id"])

    async def post_rollout(self, state: Any) -> None:
        """Run the tests before SandboxEnv deletes the sandbox, also one whose create outlasts a cancelled rollout."""
        try:
            # Shielded: a cancelled wait must not lose the id of a sandbox that is being created.
            await asyncio.shield(state["creating"])
            state["passed"] = []
            # Without a completion the rollout's own time limit ended it.
            if state["error"] is None and state["completion"]:
                await self.run_tests(state)
        except vf.Error as error:
            state["error"] = state["error"] or error
        if state["error"] is not None:
            mask(state)

    async def run_tests(self, state: Any) -> None:
        """Run the tests. Raises SandboxError if any has no result: what the others say is no score."""
        text = program(state["completion"]).encode()
        try:
            await self.sandbox_client.upload_bytes(state["sandbox_id"], f"{FOLDER}/{FILE}", text, FILE)
        except Exception as error:
            raise vf.SandboxError from error
        tests = state["info"]["tests"][: self.most_tests]
        # All of them end before the sandbox is deleted.
        results = await asyncio.gather(*(self.test(state, test) for test in tests), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise vf.SandboxError from result
        state["passed"] = results

    async def test(self, state: Any, test: dict[str, str]) -> bool:
        """Whether the program answers this input. A time limit, a signal or exhausted memory is a wrong answer."""
        try:
            done = await self.sandbox_client.execute_command(
                state["sandbox_id"],
                f"printf %s {shlex.quote(test['input'])} | python3 {FILE}",
                working_dir=FOLDER,
                timeout=self.timeout_per_command_seconds,
            )
        except CommandTimeoutError as error:
            # The client says this also where no answer came: only with one (HTTP 408) is it the program's doing.
            if isinstance(error.__cause__, httpx.TimeoutException):
                raise
            return False
        return done.exit_code == 0 and done.stdout.strip() == test["output"].strip()
