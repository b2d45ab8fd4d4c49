"""The SVG plots of a load test: latency, throughput, sandboxes, CPU, memory, outcomes of calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from sandlot_grade.report import charts
from sandlot_grade.report.stats import percentile, rate

from loadtests.load.events import TASK, Event
from loadtests.load.sampling import Sample
from loadtests.load.trial import Found

BINS = 60
POINTS = 400  # points per line: more would only make the page large
MIB = 1 << 20
Lines = dict[str, list[tuple[float, float]]]


def plots(found: Found) -> dict[str, str]:
    """Return the plots by heading, in reading order."""
    calls = [event for event in found.events if event.is_call]
    timed = [event for event in found.events if event.kind != TASK]
    curves = {kind: [event.latency for event in events] for kind, events in by_kind(timed).items()}
    curves |= {
        f"{kind}, service": [event.service for event in events]
        for kind, events in by_kind(calls).items()
        if any(event.began > event.intended for event in events)
    }
    curves |= {f"baseline: {name}": taken.times for name, taken in found.baselines.items()}
    made = {
        "Latency over time": charts.over_time(latency_over_time(timed), unit="ms"),
        "Latency, by share of calls": charts.distributions(curves),
        "Throughput": charts.over_time(throughput(calls), unit="a second"),
        "Sandboxes by state": charts.over_time(states(found.samples), unit="sandboxes", steps=True),
        "CPU": charts.over_time(cores(found.samples), unit="cores"),
        "Memory": charts.over_time(memory(found.samples), unit="MiB"),
    }
    if any(sample.nodes for sample in found.samples):
        made["Pods ready, by node"] = charts.over_time(nodes(found.samples), unit="pods", steps=True)
    if any(sample.objects for sample in found.samples):
        made["Objects of the API server"] = charts.over_time(
            objects(found.samples), unit="objects", steps=True
        )
    return made | {"How calls ended": charts.stacked_bars(verdicts(calls))}


def by_kind(events: Sequence[Event]) -> dict[str, list[Event]]:
    """Group the answered calls by kind."""
    found: dict[str, list[Event]] = {}
    for event in events:
        if event.outcome == "ok":
            found.setdefault(event.kind, []).append(event)
    return found


def latency_over_time(events: Sequence[Event]) -> Lines:
    """Return p50 and p99 of each kind in milliseconds, in time bins, at the middle of each."""
    end = max((event.ended for event in events), default=0.0)
    width = end / BINS or 1.0
    lines: Lines = {}
    for kind, of_it in by_kind(events).items():
        bins: dict[int, list[float]] = {}
        for event in of_it:
            bins.setdefault(min(int(event.ended / width), BINS - 1), []).append(event.latency * 1000)
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            lines[f"{kind} {name}"] = [
                ((index + 0.5) * width, percentile(values, share)) for index, values in sorted(bins.items())
            ]
    return lines


def throughput(events: Sequence[Event]) -> Lines:
    end = max((event.ended for event in events), default=0.0)
    return {
        kind: rate([event.ended for event in of_it], start=0.0, end=end, bins=BINS)
        for kind, of_it in by_kind(events).items()
    }


def states(samples: Sequence[Sample]) -> Lines:
    return _counted([(sample.at, sample.sandboxes) for sample in _thinned(samples)])


def nodes(samples: Sequence[Sample]) -> Lines:
    return _counted([(sample.at, sample.nodes) for sample in _thinned(samples)])


def objects(samples: Sequence[Sample]) -> Lines:
    return _counted([(sample.at, sample.objects) for sample in _thinned(samples)])


def cores(samples: Sequence[Sample]) -> Lines:
    """Return the cores that each part used between consecutive samples."""
    lines: Lines = {}
    thin = _thinned(samples)
    for before, after in pairwise(thin):
        for part, usage in after.parts.items():
            passed = after.at - before.at
            if part in before.parts and passed > 0:
                used = max(0.0, usage.cpu - before.parts[part].cpu) / passed
                lines.setdefault(part, []).append((after.at, used))
    return lines


def memory(samples: Sequence[Sample]) -> Lines:
    lines: Lines = {}
    for sample in _thinned(samples):
        for part, usage in sample.parts.items():
            lines.setdefault(part, []).append((sample.at, usage.memory / MIB))
    return lines


def verdicts(events: Sequence[Event]) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = {}
    for event in events:
        word = "ok" if event.outcome == "ok" else f"{event.outcome}: {event.verdict}"
        of_it = counts.setdefault(event.kind, {})
        of_it[word] = of_it.get(word, 0) + 1
    return counts


def _counted(looks: Sequence[tuple[float, Mapping[str, int]]]) -> Lines:
    """Return every name at every sample, with zeros, so that lines end at zero."""
    names = dict.fromkeys(name for _, counts in looks for name in counts)
    return {name: [(at, float(counts.get(name, 0))) for at, counts in looks] for name in names}


def _thinned(samples: Sequence[Sample]) -> Sequence[Sample]:
    step = max(1, len(samples) // POINTS)
    return samples[::step]
