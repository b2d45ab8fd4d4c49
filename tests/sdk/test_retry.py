"""Retry decisions, with a clock of the test's own."""

from __future__ import annotations

import random

import pytest
from sandlot._protocol.retry import Failure, Retry, retryable_status

LOST = Failure(sent=True)
UNREACHED = Failure(sent=False)
BUSY = Failure(sent=True, status=503, code="busy", retry_after=1.0)


def retry(**options: object) -> Retry:
    return Retry(rng=random.Random(7), **{"safe": True, **options})  # type: ignore[arg-type]


def drive(memory: Retry, failure: Failure, **options: object) -> tuple[int, float]:
    """How many attempts are made, and over how long."""
    now, attempts = 100.0, 0
    while True:
        delay = memory.after(failure, now=now, **options)  # type: ignore[arg-type]
        if delay is None:
            return attempts, now - 100.0
        attempts += 1
        now += delay


def test_a_lost_answer_is_asked_for_again_only_when_that_is_safe() -> None:
    assert retry(safe=False).after(LOST, now=0.0) is None
    assert retry(safe=True).after(LOST, now=0.0) is not None


def test_what_was_never_sent_is_always_sent_again() -> None:
    assert retry(safe=False).after(UNREACHED, now=0.0) is not None


def test_a_busy_server_has_run_nothing_so_any_request_comes_again_when_asked_to() -> None:
    delay = retry(safe=False).after(BUSY, now=0.0)
    assert delay is not None
    assert 0.75 <= delay <= 1.25


def test_delays_grow_to_a_bound_and_differ_between_clients() -> None:
    memory = retry()
    delays = [memory.after(LOST, now=0.0) or 0.0 for _ in range(12)]
    assert delays[0] < 0.1
    assert max(delays) <= 3.0
    assert delays != [Retry(safe=True, rng=random.Random(8)).after(LOST, now=0.0) for _ in range(12)]


def test_the_window_bounds_a_row_of_failures_and_progress_begins_a_new_one() -> None:
    attempts, seconds = drive(retry(window=10.0), LOST)
    assert attempts > 5
    assert 6.0 < seconds <= 10.0
    memory = retry(window=1.0)
    drive(memory, LOST)
    memory.progress()
    assert memory.after(LOST, now=500.0) is not None


def test_a_server_never_heard_of_is_given_up_soon() -> None:
    _, seconds = drive(retry(window=60.0), UNREACHED, stranger=True)
    assert seconds <= 2.0


def test_a_sandbox_that_is_not_reached_is_waited_for_until_a_cluster_has_said_what_became_of_its_node() -> (
    None
):
    for code in ("sidecar_unreachable", "sidecar_lost"):
        _, seconds = drive(retry(window=60.0), Failure(sent=True, status=502, code=code))
        assert 170.0 < seconds <= 180.0
    _, seconds = drive(retry(window=60.0), Failure(sent=True, status=502, code="bad_gateway"))
    assert seconds <= 60.0


def test_nothing_is_sent_after_the_deadline() -> None:
    _, seconds = drive(retry(window=60.0, deadline=103.0), LOST)
    assert seconds <= 3.0


@pytest.mark.parametrize(
    ("status", "code", "again"),
    [
        (503, "busy", True),
        (429, "", True),
        (504, "", True),
        (502, "may_have_run", True),
        (502, "sandbox_not_found", False),
        (500, "", False),
        (404, "", False),
        (409, "op_conflict", False),
    ],
)
def test_which_answers_are_worth_another_attempt(status: int, code: str, again: bool) -> None:
    assert retryable_status(status, code=code) is again
