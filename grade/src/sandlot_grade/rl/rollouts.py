"""Runs every answer of a step in a sandbox of its own, and turns what happened there into a reward or a masked sample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sandlot import AsyncSandbox
from sandlot.errors import ApiError, AuthError, BadRequest, ConnectionFailed, SandboxLost, WaitTimeout

from sandlot_grade.demo import LIMITS
from sandlot_grade.places import Place
from sandlot_grade.rl.tasks import Task, program, reward

MASKED = math.nan


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs answers in sandboxes of `place`, at most `concurrency` at once."""

    place: Place
    concurrency: int

    async def rewards(self, answers: Sequence[tuple[Task, str]]) -> list[float]:
        """Return a reward for each answer: 0 to 1, or MASKED if the infrastructure lost it.

        A masked sample teaches the policy nothing, while a 0 would punish it for what it did not do. Raises BadRequest
        or AuthError if the server rejects what all of them request.
        """
        found = await AsyncSandbox.map(
            _run,
            answers,
            concurrency=self.concurrency,
            return_exceptions=True,
            image=self.place.image,
            pool=self.place.pool,
            labels=self.place.labels,
            network="none",
            client=self.place.client,
            **LIMITS.sizes(),
        )
        return [_reward(one) for one in found]


async def _run(box: AsyncSandbox, item: tuple[Task, str]) -> float:
    task, answer = item
    done = await box.exec(["python3", "-c", program(task, answer)], timeout=LIMITS.timeout, cwd="/tmp")
    return reward(done.stdout) if done.verdict == "exited" and done.exit_code == 0 else 0.0


def _reward(found: float | Exception) -> float:
    if not isinstance(found, Exception):
        return found
    if isinstance(found, SandboxLost) and not found.infrastructure:
        return 0.0
    if isinstance(found, (BadRequest, AuthError)):
        raise found
    if isinstance(found, (SandboxLost, ConnectionFailed, WaitTimeout, ApiError)):
        return MASKED
    raise found
