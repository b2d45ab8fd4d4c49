"""Trains the policy: write answers, run them, learn, until the steps or the seconds are over."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from sandlot_grade.rl.policy import Policy, Samples, advantages
from sandlot_grade.rl.tasks import TASKS, Task

Run: TypeAlias = Callable[[Sequence[tuple[Task, str]]], Awaitable[Sequence[float]]]
LAST = 3  # steps whose mean is the result


@dataclass(frozen=True, slots=True)
class Step:
    """One step: its end in seconds since the start, the mean reward, numbers of samples, seconds of waiting."""

    ended: float
    reward: float
    rollouts: int
    masked: int
    waited: float


@dataclass(frozen=True, slots=True)
class Learned:
    """A task at the end: the answer written most often in the last step, its share there, the mean reward."""

    task: str
    answer: str
    share: float
    reward: float


@dataclass(slots=True)
class Training:
    """What a training did, `elapsed` in seconds."""

    steps: list[Step] = field(default_factory=list[Step])
    learned: list[Learned] = field(default_factory=list[Learned])
    elapsed: float = 0.0
    parameters: int = 0

    @property
    def rollouts(self) -> int:
        return sum(step.rollouts for step in self.steps)

    @property
    def masked(self) -> int:
        return sum(step.masked for step in self.steps)

    @property
    def waiting(self) -> float:
        """The share of the time that the trainer waits for sandboxes, 0 to 1."""
        return sum(step.waited for step in self.steps) / self.elapsed if self.elapsed else 0.0

    @property
    def first(self) -> float:
        """The mean reward of the first steps, before which the policy has learned next to nothing."""
        return _mean(self.steps[:LAST])

    @property
    def last(self) -> float:
        return _mean(self.steps[-LAST:])


async def train(
    run: Run,
    *,
    steps: int,
    group: int,
    seconds: float,
    seed: int,
    progress: Callable[[Step], None] = lambda step: None,
) -> Training:
    """Train a new policy with `group` answers a task and step; `run` returns their rewards, NaN for a masked one.

    After `seconds` no further step begins; the policy explores less and less until then, or until the last step.
    """
    policy = Policy(seed=seed)
    made = Training(parameters=policy.parameters)
    begun = time.monotonic()
    for number in range(steps):
        if made.steps and time.monotonic() - begun > seconds:
            break
        samples = policy.sample(each=group)
        asked = time.monotonic()
        rewards = np.asarray(await run(_answers(samples)), dtype=float)
        waited = time.monotonic() - asked
        spent = max(number / steps, (time.monotonic() - begun) / seconds)
        policy.learn(samples, advantages(rewards, group=group), explore=max(1 - spent, 0.0))
        masked = int(np.isnan(rewards).sum())
        mean = float(np.nanmean(rewards)) if masked < len(rewards) else 0.0
        step = Step(
            ended=time.monotonic() - begun, reward=mean, rollouts=len(rewards), masked=masked, waited=waited
        )
        made.steps.append(step)
        made.learned = _learned(samples, rewards)
        progress(step)
    made.elapsed = time.monotonic() - begun
    return made


def _answers(samples: Samples) -> list[tuple[Task, str]]:
    return [(TASKS[task], answer) for task, answer in zip(samples.tasks, samples.answers(), strict=True)]


def _learned(samples: Samples, rewards: np.ndarray) -> list[Learned]:
    answers = samples.answers()
    found: list[Learned] = []
    for number, task in enumerate(TASKS):
        rows = np.flatnonzero(samples.tasks == number)
        own = [answers[row] for row in rows]
        most = max(sorted(set(own)), key=own.count)
        known = rewards[rows][~np.isnan(rewards[rows])]
        found.append(
            Learned(
                task=task.name,
                answer=most,
                share=own.count(most) / len(own),
                reward=float(known.mean()) if len(known) else 0.0,
            )
        )
    return found


def _mean(steps: Sequence[Step]) -> float:
    return sum(step.reward for step in steps) / len(steps) if steps else 0.0
