"""The problems of the load test, and what its scripted model writes: right and wrong programs in a fixed order."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NUMBER = re.compile(r"Problem (\d+)\.")
_RIGHT = "import sys\nprint(sum(int(word) * {factor} for word in sys.stdin.read().split()))"
# Right for every test but the last.
_WRONG = "import sys\nfound = sum(int(word) * {factor} for word in sys.stdin.read().split())\nprint(found if found < {last} else 0)"
_KILLED = "import os, sys\nos.kill(os.getpid(), 9)"


@dataclass(frozen=True)
class Problem:
    """`reward` is what the scripted model deserves."""

    question: str
    tests: list[dict[str, str]]
    reward: float


def problem(number: int, *, tests: int) -> Problem:
    factor = number + 2
    inputs = [[n, 10 * n] for n in range(1, tests + 1)]
    return Problem(
        question=f"Problem {number}. Read integers, and print their sum times {factor}.",
        tests=[
            {"input": " ".join(map(str, words)), "output": f"{sum(words) * factor}\n"} for words in inputs
        ],
        reward=float(number % 4 < 2),
    )


def answer(question: str, *, tests: int) -> str:
    """Return what the model writes: every fourth program is wrong, every fourth kills itself."""
    number = number_of(question)
    text = (_RIGHT, _RIGHT, _WRONG, _KILLED)[number % 4]
    factor = number + 2
    return f"```python\n{text.format(factor=factor, last=11 * tests * factor)}\n```"


def program_in(text: str) -> str:
    """Return the program in the model's answer."""
    return text.removeprefix("```python\n").removesuffix("\n```")


def number_of(question: str) -> int:
    found = _NUMBER.search(question)
    if found is None:
        raise ValueError("the prompt has no `Problem N.`")
    return int(found[1])


def latency(number: int, *, mean: float) -> float:
    """Between half and one and a half of the mean, spread evenly over the numbers."""
    return mean * (0.5 + number * 0.6180339887 % 1)
