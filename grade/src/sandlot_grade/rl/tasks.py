"""Defines the tasks of `sandlot demo-rl`: functions of two integers, and the program that grades an answer in a sandbox."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

END = "<end>"
VALUES = ("x", "y", "1", "2", "3")
VOCABULARY = ("x", "y", "1", "2", "3", "+", "-", "*", "//", "%", END)
LONGEST = 5  # tokens of an answer, without END
PASSED = "passed"  # before the number of passed cases, in the last line of output
CASES = ((1, 2), (5, 3), (4, 4), (7, 2), (2, 9), (0, 6), (10, 7), (3, 11))


@dataclass(frozen=True, slots=True)
class Task:
    """A function that the policy has to write as an expression of `x` and `y`."""

    name: str
    function: Callable[[int, int], int]


TASKS = (
    Task("the sum", lambda x, y: x + y),
    Task("the difference", lambda x, y: x - y),
    Task("the product", lambda x, y: x * y),
    Task("twice the second", lambda x, y: 2 * y),
    Task("the square of the first", lambda x, y: x * x),
    Task("the first modulo 3", lambda x, y: x % 3),
    Task("the sum plus one", lambda x, y: x + y + 1),
    Task("the square less the second", lambda x, y: x * x - y),
)


def program(task: Task, answer: str) -> str:
    """Return the source of a program that prints how many cases the expression `answer` passes."""
    cases = [(x, y, task.function(x, y)) for x, y in CASES]
    return (
        f"def solution(x, y):\n    return {answer}\n\n"
        "def right(x, y, expected):\n"
        "    try:\n        return solution(x, y) == expected\n"
        "    except ArithmeticError:\n        return False\n\n"
        f"print({PASSED!r}, sum(right(*case) for case in {cases}))\n"
    )


def reward(stdout: str) -> float:
    """Return the share of the cases that a program says it passed; 0 if it did not run to its end."""
    words = stdout.split()
    if len(words) != 2 or words[0] != PASSED or not words[1].isdecimal():
        return 0.0
    return min(int(words[1]) / len(CASES), 1.0)
