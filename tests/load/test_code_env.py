"""The parts of the load test `code-env` that need no sandbox: its model, its problems, and what it counts."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import pytest

from loadtests.code_env.figures import of_rollouts
from loadtests.code_env.losses import Loss
from loadtests.code_env.messages import Record
from loadtests.code_env.model import Model, serving
from loadtests.code_env.problems import answer, latency, problem, program_in
from tests import plain_http


def record(number: int, **fields: Any) -> Record:
    whole: dict[str, Any] = {"reward": 1.0, "expected": 1.0, "error": "", "sandbox": f"sb-{number}"}
    times = {"began": 0.0, "created": 1.0, "inferred": 9.0, "testing": 9.0, "tested": 9.5, "ended": 10.0}
    return Record(**{"number": number, **whole, **times, **fields})


def lost(number: int, **fields: Any) -> Record:
    return record(number, reward=None, error="SandboxError()", tested=None, **fields)


def test_a_rollout_waits_for_all_that_the_model_did_not_take() -> None:
    told = of_rollouts([record(0), record(1, created=9.25, testing=9.25)], [])
    assert (told["seconds"], told["waited"], told["share"]) == (10.0, 1.0, 0.1)
    assert told["create_not_hidden"] == pytest.approx(0.125)
    assert told["masked"] == told["killed"] == told["unexplained"] == told["misjudged"] == 0


def test_a_rollout_that_says_what_it_waited_is_believed() -> None:
    told = of_rollouts([record(0, in_sandlot=2.5)], [])
    assert (told["waited"], told["share"]) == (2.5, 0.25)


def test_kills_of_sandboxes_that_rollouts_share_mask_none() -> None:
    shared = [record(number, sandbox="", created=None) for number in range(2)]
    told = of_rollouts(shared, [Loss("sb-shared", 4.9, 5.0)])
    assert (told["kills"], told["killed"], told["masked"], told["scored"]) == (1, 0, 0, 2)


def test_each_way_to_mistake_a_killed_sandbox_is_counted() -> None:
    early, late = Loss("sb-0", 4.9, 5.0), Loss("sb-0", 9.4, 9.75)
    right = of_rollouts([lost(0), record(1)], [early])
    assert (right["killed"], right["masked"], right["scored"]) == (1, 1, 1)
    assert right["unmasked"] == right["unexplained"] == right["misjudged"] == 0
    # Scored as a failure of the program: the zero that must not happen.
    zero = of_rollouts([record(0, reward=0.0)], [early])
    assert (zero["killed"], zero["unmasked"], zero["misjudged"]) == (1, 1, 1)
    assert of_rollouts([lost(0)], [])["unexplained"] == 1
    # One that ended after the tests may have come too late: only what was masked shows that it did not.
    assert of_rollouts([record(0)], [late])["killed"] == 0
    assert of_rollouts([lost(0)], [late])["killed"] == 1


async def test_the_model_answers_after_its_stated_time_over_one_connection() -> None:
    async with serving(Model(mean=0.2, tests=3)) as model, plain_http.async_client(timeout=60) as client:
        answered: list[int] = []
        model.answered = answered.append
        for number in (1, 2):
            question = problem(number, tests=3).question
            body = {"model": "m", "messages": [{"role": "user", "content": question}]}
            began = time.monotonic()
            told = (await client.post(f"{model.url}/chat/completions", json=body)).json()
            assert time.monotonic() - began >= latency(number, mean=0.2)
            assert told["choices"][0]["message"]["content"] == answer(question, tests=3)
        assert answered == [1, 2]


def test_completions_take_between_half_and_one_and_a_half_of_the_mean() -> None:
    taken = [latency(number, mean=2.0) for number in range(100)]
    assert 1.0 <= min(taken) < 1.1
    assert 2.9 < max(taken) < 3.0
    assert sum(taken) / 100 == pytest.approx(2.0, rel=0.02)


@pytest.mark.parametrize("number", range(4))
def test_programs_pass_the_tests_that_their_reward_says(number: int) -> None:
    asked = problem(number, tests=3)
    text = program_in(answer(asked.question, tests=3))
    passed: list[bool] = []
    for test in asked.tests:
        done = subprocess.run(
            [sys.executable, "-S", "-c", text],
            input=test["input"],
            capture_output=True,
            text=True,
            check=False,
        )
        passed.append(done.returncode == 0 and done.stdout == test["output"])
    assert float(all(passed)) == asked.reward
    assert passed == [[True] * 3, [True] * 3, [True, True, False], [False] * 3][number]
