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


class Middle(random.Random):
    """Neither early nor late: every delay is exactly what it is meant to be."""

    def random(self) -> float:
        return 0.5


def exact(**options: object) -> Retry:
    return Retry(rng=Middle(), **{"safe": True, **options})  # type: ignore[arg-type]


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


def test_delays_double_up_to_two_seconds_and_begin_anew_with_progress() -> None:
    memory = exact()
    for _ in range(2):
        delays = [memory.after(LOST, now=0.0) for _ in range(30)]
        assert delays == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6] + [2.0] * 24
        memory.progress()


@pytest.mark.parametrize(
    ("random_", "delay", "asked"), [(0.0, 0.025, 15.0), (0.5, 0.05, 20.0), (1.0, 0.075, 25.0)]
)
def test_clients_spread_over_half_of_a_delay(random_: float, delay: float, asked: float) -> None:
    class Fixed(random.Random):
        def random(self) -> float:
            return random_

    failure = Failure(sent=True, status=503, retry_after=20.0)
    assert Retry(safe=True, rng=Fixed()).after(LOST, now=0.0) == pytest.approx(delay)
    assert Retry(safe=True, rng=Fixed()).after(failure, now=0.0) == pytest.approx(asked)
    assert Retry(safe=True).after(LOST, now=0.0) is not None


def test_a_server_that_asks_for_less_than_the_next_delay_gets_the_delay() -> None:
    memory = exact()
    for _ in range(5):
        memory.after(LOST, now=0.0)
    assert memory.after(Failure(sent=True, status=503, retry_after=1.0), now=0.0) == 1.6
    assert memory.after(Failure(sent=True, status=503, retry_after=3.0), now=0.0) == 3.0


@pytest.mark.parametrize(
    ("failure", "stranger", "seconds"),
    [
        (LOST, False, 60.0),
        (UNREACHED, False, 60.0),
        (Failure(sent=True, status=503, code="internal"), False, 60.0),
        (Failure(sent=True, status=504), False, 60.0),
        (Failure(sent=True, status=503, code="busy"), False, 600.0),
        (Failure(sent=True, status=429), False, 600.0),
        (Failure(sent=True, status=502, code="sidecar_unreachable"), False, 180.0),
        (UNREACHED, True, 2.0),
        (LOST, True, 60.0),
    ],
)
def test_how_long_each_failure_is_outlasted(failure: Failure, stranger: bool, seconds: float) -> None:
    """To the moment: what would begin at the end of its time is still begun."""
    memory = exact()
    assert memory.after(failure, now=1000.0, stranger=stranger) == 0.05
    assert memory.after(failure, now=1000.0 + seconds - 0.125, stranger=stranger) == 0.1
    assert memory.after(failure, now=1000.0 + seconds - 0.125, stranger=stranger) is None
    options = {"busy_window" if failure.busy else "window": 0.05 / (3 if failure.unreachable else 1)}
    assert exact(**options).after(failure, now=0.0, stranger=stranger) == 0.05


def test_a_window_that_is_shorter_than_a_strangers_holds_for_it_too() -> None:
    assert drive(exact(window=1.0), UNREACHED, stranger=True)[1] <= 1.0


def test_what_is_not_said_of_a_server_is_that_it_answered_before() -> None:
    memory = exact()
    memory.after(UNREACHED, now=0.0)
    assert memory.after(UNREACHED, now=30.0) is not None


def test_the_deadline_counts_to_the_moment() -> None:
    assert exact(deadline=0.05).after(LOST, now=0.0) == 0.05
    assert exact(deadline=0.04).after(LOST, now=0.0) is None


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
