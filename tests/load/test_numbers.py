"""The pure parts of the load test: when tasks begin, how events merge, what is counted, and how bounds are read."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandlot import errors

from loadtests.bounds import Bound, SpecError, read_bounds
from loadtests.load import events as journal
from loadtests.load import judge, profile_files, summary
from loadtests.load.events import Event
from loadtests.load.messages import Done, Ledger
from loadtests.load.sampling import Sample, Usage, states
from loadtests.load.schedule import arrivals, share
from loadtests.load.summary import Span

times = st.floats(0, 1000, allow_nan=False)


def event(*, ended: float = 1.0, **fields: Any) -> Event:
    return Event(
        **{"phase": "p", "process": 0, "number": 0, "kind": "exec", "intended": 0.0, "began": 0.0} | fields,
        ended=ended,
    )


def done(**fields: Any) -> Done:
    return Done(
        **{"phase": "p", "process": 0, "calls": 10, "cpu": 0.1, "wall": 1.0, "lags": [], "sends": []} | fields
    )


@given(total=st.integers(0, 500), processes=st.integers(1, 9))
def test_shares_add_up_and_differ_by_one_at_most(total: int, processes: int) -> None:
    shares = [share(total, process=process, processes=processes) for process in range(processes)]
    assert sum(shares) == total
    assert max(shares) - min(shares) <= 1


@given(rate=st.floats(0.5, 200), seconds=st.floats(0.1, 5), seed=st.integers())
def test_poisson_arrivals_are_in_order_inside_the_window_and_the_same_for_every_process(
    rate: float, seconds: float, seed: int
) -> None:
    made = list(arrivals(rate=rate, seconds=seconds, spacing="poisson", seed=seed))
    assert made == sorted(made)
    assert all(0 < moment < seconds for moment in made)
    assert made == list(arrivals(rate=rate, seconds=seconds, spacing="poisson", seed=seed))


def test_poisson_arrivals_have_their_rate_and_their_spread() -> None:
    made = list(arrivals(rate=100, seconds=100, spacing="poisson", seed=7))
    assert abs(len(made) - 10_000) < 400  # four standard deviations
    gaps = [after - before for before, after in pairwise(made)]
    assert abs(sum(gap > 0.01 for gap in gaps) / len(gaps) - math.exp(-1)) < 0.03


@given(rate=st.integers(1, 100), seconds=st.integers(1, 20))
def test_even_arrivals_are_exactly_as_many_as_asked_for(rate: int, seconds: int) -> None:
    made = list(arrivals(rate=rate, seconds=seconds, spacing="even", seed=0))
    assert len(made) == rate * seconds
    assert made[0] == 0


@given(st.lists(st.lists(times, max_size=20), max_size=4))
def test_merging_keeps_every_event_in_the_order_of_the_ends(parts: list[list[float]]) -> None:
    files = [[event(ended=end) for end in sorted(part)] for part in parts]
    found = [one.ended for one in journal.merged(files)]
    assert found == sorted(end for part in parts for end in part)


def test_events_come_back_from_their_file(tmp_path: Path) -> None:
    written = [
        event(ended=2.5, verdict="oom", outcome="wrong", message="peak 4 GiB"),
        event(ended=3.5, warm=True),
    ]
    file = journal.Journal(tmp_path / "e.jsonl")
    for one in written:
        file.add(one)
    file.close()
    assert list(journal.read(tmp_path / "e.jsonl")) == written


@given(st.lists(times, min_size=1, max_size=200))
def test_quantiles_are_exact(values: list[float]) -> None:
    found = summary.quantiles(values)
    ordered = sorted(values)
    assert found["max"] == pytest.approx(ordered[-1], abs=1e-6)
    assert list(found.values()) == sorted(found.values())
    for name, part in (("p50", 0.5), ("p99", 0.99)):
        below = sum(value <= found[name] + 1e-6 for value in values)
        assert below >= math.floor(part * (len(values) - 1))
    if len(values) % 2:
        assert found["p50"] == pytest.approx(ordered[len(values) // 2], abs=1e-6)


def test_a_phase_is_counted_by_kind_outcome_and_verdict() -> None:
    events = [
        event(intended=0.0, began=0.5, ended=1.0),
        event(intended=1.0, began=1.0, ended=3.0),
        event(outcome="infrastructure", verdict="node_lost", ended=4.0),
        event(outcome="refused", verdict="busy", ended=4.0),
        event(outcome="wrong", verdict="unexpected", ended=4.0),
        event(kind="create", ended=2.0, warm=True, queued=0.5, started=0.75, claimed=0.25),
        event(kind="task", outcome="infrastructure", verdict="node_lost", ended=5.0),
    ]
    span = Span(
        name="p",
        begun=0.0,
        ended=5.0,
        done=[done(ledger=Ledger(recorded=4, lost=1)), done(ledger=Ledger(twice=2))],
    )
    found = summary.of_phase(span, events=events, samples=[])
    assert (found["calls"], found["wrong"], found["refused"], found["infrastructure"]) == (6, 1, 1, 1)
    execs = found["kinds"]["exec"]
    assert execs["verdicts"] == {"exited": 2, "node_lost": 1, "busy": 1, "unexpected": 1}
    assert (execs["count"], execs["ok"], execs["rate"]) == (5, 2, 0.5)
    # Latency counts from the intended moment, service time from the call.
    assert (execs["latency"]["p50"], execs["service"]["p50"]) == (1.5, 1.25)
    create = found["kinds"]["create"]
    assert (create["warm"], create["queued"]["p50"], create["untold"]["p50"]) == (1, 0.5, 0.5)
    assert found["ledger"] == {"recorded": 4, "lost": 1, "twice": 2, "unread": 0}


@pytest.mark.parametrize(
    ("late", "words"),
    [
        (done(lags=[0.0] * 50 + [0.3] * 5), "event loop was 300 ms late"),
        (done(sends=[0.0] * 50 + [0.25] * 5), "began tasks 250 ms after their moment"),
        (done(cpu=0.95), "used 95% of a core"),
    ],
)
def test_a_generator_that_lags_says_how(late: Done, words: str) -> None:
    found = summary.of_generator([done(lags=[0.001] * 9), late])
    assert found["lagged"]
    assert words in found["reasons"][0]
    assert len(found["reasons"]) == 1


def test_only_phases_with_calls_can_be_spoilt_by_a_lag() -> None:
    late = {"lagged": True, "reasons": ["it was late"]}
    phases = {"rest": {"calls": 0, "generator": late}, "load": {"calls": 3, "generator": late}}
    assert summary.lagged(phases, {}) == ["load: it was late"]


def test_a_generator_that_is_in_time_says_what_it_used() -> None:
    found = summary.of_generator([done(lags=[0.001] * 100, sends=[0.002] * 10), done(calls=30)])
    assert not found["lagged"]
    assert found["cpu_ms_per_call"] == 5.0
    assert found["cores"] == 0.2
    assert found["lag"]["p99"] == 0.001


def test_parts_are_told_by_cores_most_memory_and_growth() -> None:
    samples = [
        Sample(
            at=float(at),
            parts={"gateway": Usage(cpu=at * 0.5, memory=100 + 10 * at, descriptors=20)},
            sandboxes={},
        )
        for at in range(10)
    ]
    found = summary.of_parts(samples)["gateway"]
    assert found["cores"] == 0.5
    assert found["memory"] == 190
    assert found["memory_growth"] == pytest.approx(185 / 125)
    assert found["descriptors_growth"] == 1.0


def test_what_the_runtime_uses_by_itself_is_not_the_sandboxes_own() -> None:
    def at(seconds: float, *, bare: bool) -> Sample:
        parts = {"sidecars": (0.03, 10), "sandboxes": (0.02, 10), **({"bare": (0.008, 4)} if bare else {})}
        used = {
            part: Usage(cpu=cores * seconds, memory=1, processes=count)
            for part, (cores, count) in parts.items()
        }
        return Sample(at=seconds, parts=used, sandboxes={})

    span = Span(name="p", begun=0.0, ended=10.0, done=[done()], rate=0.4711)
    found = summary.of_phase(span, events=[], samples=[at(0, bare=True), at(10, bare=True)])
    assert found["rate"] == 0.471
    assert found["own"]["cores"] == pytest.approx(0.05 - 20 * 0.002)
    found = summary.of_phase(span, events=[], samples=[at(0, bare=False), at(10, bare=False)])
    assert found["own"]["cores"] == pytest.approx(0.05), "nothing beside them to compare with"


def test_objects_are_told_by_their_most_and_growth_and_a_look_without_an_answer_counts_for_nothing() -> None:
    kept = [10, 10, 10, 0, 12, 12, 12, 12, 20, 20]
    samples = [
        Sample(at=float(at), parts={}, sandboxes={}, objects={"pods": 4, "sandboxes": count} if count else {})
        for at, count in enumerate(kept)
    ]
    span = Span(name="p", begun=0.0, ended=9.0, done=[done()])
    found = summary.of_phase(span, events=[], samples=samples)["objects"]
    assert found == {
        "pods": {"most": 4, "growth": 1.0},
        "sandboxes": {"most": 20, "growth": pytest.approx(20 / 10, abs=1e-4)},
    }
    assert "objects" not in summary.of_phase(span, events=[], samples=samples[3:4])


def test_states_are_read_from_what_a_gateway_tells_prometheus() -> None:
    text = (
        'sandlot_sandboxes{status="RUNNING"} 3.0\nsandlot_sandboxes{status="ERROR"} 0.0\n'
        "sandlot_ready_instances 2.0\nsandlot_creates_waiting 7.0\nsandlot_ready_instances_x 9.0\n"
    )
    assert states(text) == {"running": 3, "warm": 2, "waiting": 7}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.SandboxLost("gone", verdict="node_lost"), ("infrastructure", "node_lost")),
        (errors.SandboxLost("gone", verdict="oom"), ("wrong", "oom")),
        (errors.SandboxLost("gone", verdict="deleted"), ("infrastructure", "deleted")),
        (errors.Busy("full"), ("refused", "busy")),
        (errors.ConnectionFailed("no"), ("infrastructure", "connection_failed")),
        (errors.WaitTimeout("late"), ("infrastructure", "wait_timeout")),
        (errors.ServerError("no", status=500), ("infrastructure", "server_error")),
        (errors.FileMissing("no", status=404, code="file_missing"), ("wrong", "file_missing")),
        (errors.SandlotError("no"), ("infrastructure", "SandlotError")),
    ],
)
def test_errors_are_told_apart(error: errors.SandlotError, expected: tuple[str, str]) -> None:
    assert journal.judged(error) == expected


SUMMARY = {
    "phases": {"p": {"rate": 30.0, "lost": 0, "lagged": True}},
    "baselines": {"spawn": {"rate": 60.0, "none": 0}},
}


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        ("phases.p.rate", 30.0),
        ("phases.p.rate / baselines.spawn.rate", 0.5),
        ("phases.p.lost", 0.0),
        ("phases.q.rate", math.nan),
        ("phases.p", math.nan),
        ("phases.p.lagged", math.nan),
        ("phases.p.rate / baselines.spawn.none", math.nan),
    ],
)
def test_a_bound_reads_its_value_from_the_summary(formula: str, value: float) -> None:
    assert judge.value_of(formula, SUMMARY) == pytest.approx(value, nan_ok=True)


def test_a_value_that_is_missing_misses_its_bound() -> None:
    bounds = {
        "a.x": Bound(name="a.x", what="x", unit="×", of="phases.p.rate / baselines.spawn.rate", at_least=0.4),
        "a.y": Bound(name="a.y", what="y", unit="", of="phases.p.gone", at_most=3),
    }
    rows = judge.judged(bounds, SUMMARY)
    assert [(row["name"], row["value"], row["held"]) for row in rows] == [
        ("a.x", 0.5, True),
        ("a.y", None, False),
    ]


def test_every_bound_belongs_to_a_profile_and_says_what_was_measured() -> None:
    text = judge.SPEC.read_text()
    for name in read_bounds(judge.SPEC):
        assert name.partition(".")[0] in profile_files.names()
        row = text.partition(f"\n{name}:")[2].partition("\n  at_")[0]
        assert "# measured" in row, name
    for name in profile_files.names():
        assert judge.bounds_of(name, on={"local"}, short=False)


def test_bounds_are_of_a_profile_and_a_place_and_a_short_run_has_those_of_counts(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(
        "a.rate: {of: x, unit: ×, at_least: 0.4}\na.time: {of: x, unit: s, at_most: 3}\na.lost: {of: x, at_most: 0}\n"
        "a.far: {of: x, at_most: 1, where: cluster}\nb.rate: {of: x, at_least: 1}\n"
    )
    there = judge.bounds_of("a", on={"local"}, short=False, path=path)
    assert {name: bound.limit for name, bound in there.items()} == {
        "a.rate": "≥ 0.4",
        "a.time": "≤ 3",
        "a.lost": "≤ 0",
    }
    assert "a.far" in judge.bounds_of("a", on={"cluster", "runc"}, short=False, path=path)
    short = judge.bounds_of("a", on={"local"}, short=True, path=path)
    assert list(short) == ["a.lost"]
    path.write_text("a.rate: {at_least: 0.4}\n")
    with pytest.raises(SpecError, match=r"a\.rate: needs `of`"):
        judge.bounds_of("a", on={"local"}, short=False, path=path)
