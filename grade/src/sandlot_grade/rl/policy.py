"""A policy from scratch in numpy: a network that gives the next token of an answer, and its policy gradient."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sandlot_grade.rl.tasks import END, LONGEST, TASKS, VALUES, VOCABULARY

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

HIDDEN = 64
LEARNING_RATE = 0.04
ENTROPY = (
    0.15  # weight of the policy's entropy at the start: without it, the policy settles on its first success
)
DECAYS = (0.9, 0.99)  # of Adam's two averages
_BEGIN = len(VOCABULARY)  # the token before the first
_END = VOCABULARY.index(END)
# Added to logits: values and operators take turns, as in every expression. Otherwise most answers are syntax errors.
_TURNS = np.array(
    [[0.0 if (word in VALUES) is value else -30.0 for word in VOCABULARY] for value in (True, False)]
)


@dataclass(frozen=True, slots=True)
class Samples:
    """Answers of one step: `tasks` is (n,), `tokens` (n, LONGEST + 1), with END from the end of an answer on."""

    tasks: Ints
    tokens: Ints

    def answers(self) -> list[str]:
        """Return the answers as text, tokens separated by blanks."""
        rows: list[list[int]] = self.tokens.tolist()
        return [" ".join(VOCABULARY[token] for token in row if token != _END) for row in rows]


class Policy:
    """A network of one hidden layer that sees the task, the position and the two tokens before."""

    def __init__(self, *, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        inputs = len(TASKS) + (LONGEST + 1) + 2 * (len(VOCABULARY) + 1)
        self._weights: list[Floats] = [
            self._random.normal(0.0, 0.3, (inputs, HIDDEN)),
            self._random.normal(0.0, 0.1, (HIDDEN, len(VOCABULARY))),
        ]
        self._averages = [(np.zeros_like(one), np.zeros_like(one)) for one in self._weights]
        self._steps = 0

    @property
    def parameters(self) -> int:
        return sum(one.size for one in self._weights)

    def sample(self, *, each: int) -> Samples:
        """Write `each` answers for every task."""
        tasks = np.repeat(np.arange(len(TASKS)), each)
        tokens = np.full((len(tasks), LONGEST + 1), _END)
        ended = np.zeros(len(tasks), dtype=bool)
        for position in range(LONGEST):
            chances = self._chances(self._forward(self._inputs(tasks, tokens, position))[1], position)
            draws = self._random.random((len(tasks), 1))
            chosen = (chances.cumsum(axis=1) < draws).sum(axis=1).clip(max=len(VOCABULARY) - 1)
            tokens[:, position] = np.where(ended, _END, chosen)
            ended |= chosen == _END
        return Samples(tasks, tokens)

    def learn(self, samples: Samples, advantages: Floats, *, explore: float) -> None:
        """Make one step of policy gradient.

        `advantages` is (n,), 0 for a sample that does not count; `explore` is the share of ENTROPY, from 1 down to 0.
        """
        gradients = [np.zeros_like(one) for one in self._weights]
        ended = np.zeros(len(samples.tasks), dtype=bool)
        for position in range(LONGEST):
            inputs = self._inputs(samples.tasks, samples.tokens, position)
            hidden, logits = self._forward(inputs)
            chances = self._chances(logits, position)
            logs = np.log(chances + 1e-12)
            chosen = np.eye(len(VOCABULARY))[samples.tokens[:, position]]
            entropy = -(chances * logs).sum(axis=1, keepdims=True)
            outer = advantages[:, None] * (chosen - chances) - explore * ENTROPY * chances * (logs + entropy)
            outer *= ~ended[:, None]
            gradients[1] += hidden.T @ outer
            gradients[0] += inputs.T @ ((outer @ self._weights[1].T) * (1 - hidden**2))
            ended |= samples.tokens[:, position] == _END
        self._ascend([one / len(samples.tasks) for one in gradients])

    def _ascend(self, gradients: list[Floats]) -> None:
        """Follow the gradients by Adam."""
        self._steps += 1
        for weights, (first, second), gradient in zip(self._weights, self._averages, gradients, strict=True):
            first += (1 - DECAYS[0]) * (gradient - first)
            second += (1 - DECAYS[1]) * (gradient**2 - second)
            mean = first / (1 - DECAYS[0] ** self._steps)
            square = second / (1 - DECAYS[1] ** self._steps)
            weights += LEARNING_RATE * mean / (np.sqrt(square) + 1e-8)

    def _forward(self, inputs: Floats) -> tuple[Floats, Floats]:
        hidden = np.tanh(inputs @ self._weights[0])
        return hidden, hidden @ self._weights[1]

    def _chances(self, logits: Floats, position: int) -> Floats:
        raised = logits + _TURNS[position % 2]
        exponents = np.exp(raised - raised.max(axis=1, keepdims=True))
        return exponents / exponents.sum(axis=1, keepdims=True)

    def _inputs(self, tasks: Ints, tokens: Ints, position: int) -> Floats:
        words = np.eye(len(VOCABULARY) + 1)
        begin = np.full(len(tasks), _BEGIN)
        before = tokens[:, position - 1] if position > 0 else begin
        further = tokens[:, position - 2] if position > 1 else begin
        place = np.tile(np.eye(LONGEST + 1)[position], (len(tasks), 1))
        return np.concatenate([np.eye(len(TASKS))[tasks], place, words[before], words[further]], axis=1)


def advantages(rewards: Floats, *, group: int) -> Floats:
    """Return each reward's distance from its group's mean, in standard deviations: GRPO's (DeepSeekMath, 2024).

    `rewards` is (n,) in groups of `group`; a NaN is a sample that does not count, and gets 0.
    """
    groups = rewards.reshape(-1, group)
    counts = ~np.isnan(groups)
    known = np.where(counts, groups, 0.0)
    number = np.maximum(counts.sum(axis=1, keepdims=True), 1)
    mean = known.sum(axis=1, keepdims=True) / number
    spread = np.sqrt((counts * (known - mean) ** 2).sum(axis=1, keepdims=True) / number)
    return (counts * (known - mean) / (spread + 1e-4)).reshape(-1)
