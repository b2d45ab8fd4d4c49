"""Rates and times of callers beside others: both kinds are counted in the same seconds."""

from __future__ import annotations

from loadtests.load import summary
from loadtests.load.events import Event, Outcome
from loadtests.load.messages import Done
from loadtests.load.summary import Span


def call(kind: str, began: float, ended: float, outcome: Outcome = "ok") -> Event:
    return Event(
        phase="p",
        process=0,
        number=0,
        kind=kind,
        intended=began,
        began=began,
        ended=ended,
        outcome=outcome,
    )


def done(lag: float = 0.0) -> Done:
    return Done(phase="p", process=0, calls=10, cpu=0.1, wall=1.0, lags=[lag] * 9, sends=[])


def test_the_rate_of_a_window_counts_what_ended_in_it_for_calls_of_any_length() -> None:
    short = [call("exec", at, at + 1) for at in (1.0, 2.0, 3.0, 4.0, 4.5)]
    long = [
        call("pods_exec", 1.0, 5.0),
        call("pods_exec", 2.0, 6.0),
        call("pods_exec", 3.0, 7.0, "infrastructure"),
    ]
    span = Span(name="p", begun=1.0, ended=7.0, done=[done()], window=4.0, others=[done(0.3)])
    found = summary.of_phase(span, events=[*short, *long], samples=[])
    exec_, pods_exec = found["kinds"]["exec"], found["kinds"]["pods_exec"]
    assert (exec_["rate"], exec_["count"], exec_["failed"], exec_["open"]) == (4 / 4, 5, 0, 1)
    assert (pods_exec["rate"], pods_exec["failed"], pods_exec["open"]) == (1 / 4, 1, 2)
    # What began in it counts with all of its time, also if it ended later.
    assert pods_exec["latency"]["max"] == 4.0
    assert found["infrastructure"] == 0
    (line,) = summary.lagged({"p": found}, {"many": {}})
    assert line.startswith("p, callers of pods/exec: its event loop was 300 ms late")
    assert summary.lagged({}, {"many": {"lagged": ["slow"]}}) == ["baseline many: slow"]
