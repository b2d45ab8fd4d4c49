"""Turns the events, samples and baselines of a run into `summary.json`, the numbers to report and bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sandlot_grade.report.stats import percentile

from loadtests.load.baselines import Baselines
from loadtests.load.breaking import Broken
from loadtests.load.events import Event
from loadtests.load.kubelet import BARE
from loadtests.load.lag import FULL, LATE
from loadtests.load.messages import Done
from loadtests.load.sampling import Sample
from loadtests.load.strangers import Attack
from loadtests.load.warming import Warmed

SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0}


@dataclass(frozen=True, slots=True)
class Span:
    """A phase as it ran, in seconds since the run began. `window`: for how many of them callers began calls, if they did so
    in a loop; `others`: of the processes of `pods/exec`; `rate`: of tasks that began per second in an open loop.
    """

    name: str
    begun: float
    ended: float
    done: Sequence[Done]
    window: float | None = None
    rate: float | None = None
    others: Sequence[Done] = ()
    broken: Sequence[Broken] = ()
    attack: Attack | None = None
    supplied: Mapping[str, int] = field(default_factory=dict)  # what the place made for images meanwhile
    warmed: Warmed | None = None
    rollouts: Mapping[str, Any] | None = None  # of loadtests/code_env


def quantiles(values: Iterable[float]) -> dict[str, float]:
    """Return exact quantiles of all values; empty without values."""
    ordered = sorted(values)
    return {name: round(percentile(ordered, share), 6) for name, share in SHARES.items()} if ordered else {}


def of_phase(span: Span, *, events: Sequence[Event], samples: Sequence[Sample]) -> dict[str, Any]:
    """Summarise one phase: calls by kind, verdicts, ledger, generator and parts."""
    kinds: dict[str, list[Event]] = {}
    for event in events:
        kinds.setdefault(event.kind, []).append(event)
    outcomes = Counter(event.outcome for event in events if event.is_call)
    found: dict[str, Any] = {
        "seconds": round(span.ended - span.begun, 3),
        "calls": sum(1 for event in events if event.is_call),
        "wrong": outcomes["wrong"],
        "refused": outcomes["refused"],
        "infrastructure": outcomes["infrastructure"],
        "kinds": {
            kind: _of_kind(of_it, begun=span.begun, window=span.window) for kind, of_it in kinds.items()
        },
        "generator": of_generator(span.done),
    }
    if span.rate is not None:
        found["rate"] = round(span.rate, 3)
    if span.others:
        found["pods_exec"] = of_generator(span.others)
    during = [sample for sample in samples if span.begun <= sample.at <= span.ended]
    found["parts"] = of_parts(during)
    if pods := [found["parts"][part] for part in ("sidecars", "sandboxes") if part in found["parts"]]:
        found["own"] = beyond_runtime(pods, found["parts"].get(BARE))
    if objects := of_objects(during):
        found["objects"] = objects
    ledgers = [done.ledger for done in span.done if done.ledger is not None]
    if ledgers:
        found["ledger"] = {
            name: sum(getattr(ledger, name) for ledger in ledgers)
            for name in ("recorded", "lost", "twice", "unread")
        }
    for done in span.done:
        if done.figures:
            found["figures"] = done.figures
    if images := {event.image for event in events if event.image}:
        found["dataset"] = {"images_used": len(images), **span.supplied}
    if span.warmed is not None:
        found["dataset"] = dict(span.supplied)
        found["warm_up"] = of_warm_up(span.warmed)
    if span.rollouts is not None:
        found["rollouts"] = dict(span.rollouts)
    if span.attack is not None:
        found["strangers"] = of_attack(span.attack)
    if span.broken:
        found["faults"] = [
            {"kill": one.kill, "at": one.at, "away": round(one.away, 3)} for one in span.broken
        ]
    return found


def of_warm_up(warmed: Warmed) -> dict[str, Any]:
    """Return the images, their copies and bytes, how long they took, the estimate at half ÷ what it took, and errors."""
    result, estimate = warmed.result, warmed.estimate
    return {
        **{name: getattr(result, name) for name in ("images", "ready", "failed", "copies", "bytes")},
        "seconds": round(warmed.seconds, 2),
        "estimate": None if estimate is None else round(estimate, 3),
        "errors": [f"{error.image}: {error.message}" for error in result.errors],
    }


def of_attack(attack: Attack) -> dict[str, Any]:
    """Return the connections wanted, held and opened, and a gateway's growth in MiB meanwhile."""
    return {
        **{name: getattr(attack, name) for name in ("connections", "held", "opened", "refused")},
        "before": attack.before,
        "most": attack.most,
        "grown_mib": round(attack.grown / (1 << 20), 2),
    }


def _of_kind(events: Sequence[Event], *, begun: float, window: float | None) -> dict[str, Any]:
    """Summarise calls of one kind. With a window, the rate counts those that ended in it, and times are of those that began
    in it: its last calls end when others come no more, so kinds of different length would be divided by different times.
    """
    good = [event for event in events if event.outcome == "ok"]
    end = max(event.ended for event in events) if window is None else begun + window
    in_time = sum(event.ended <= end for event in good)
    timed = [event for event in good if window is None or event.began < end]
    found: dict[str, Any] = {
        "count": len(events),
        "ok": len(good),
        "failed": len(events) - len(good),
        "rate": round(in_time / max(end - begun, 1e-9), 3),
        "latency": quantiles(event.latency for event in timed),
        "service": quantiles(event.service for event in timed),
        "verdicts": dict(Counter(event.verdict for event in events)),
    }
    if window is not None:
        found["open"] = sum(event.began < end < event.ended for event in events)
    if any(event.warm or event.queued or event.started for event in good):
        found["warm"] = sum(event.warm for event in good)
        found["queued"] = quantiles(event.queued for event in good)
        found["start"] = quantiles(event.started for event in good)
        found["claim"] = quantiles(event.claimed for event in good)
        told = ((event.service, event.queued + event.started + event.claimed) for event in good)
        found["untold"] = quantiles(max(0.0, service - by_server) for service, by_server in told)
    if any(event.cpu for event in good):
        found["cpu"] = round(sum(event.cpu for event in good), 3)
    return found


def of_generator(done: Sequence[Done]) -> dict[str, Any]:
    """Return the generator's delays and CPU; `lagged` lists why its own delays distort the results."""
    cpu, wall = sum(one.cpu for one in done), max((one.wall for one in done), default=0.0)
    calls = sum(one.calls for one in done)
    lag = quantiles(value for one in done for value in one.lags)
    sends = quantiles(value for one in done for value in one.sends)
    busiest = max((one.cpu / one.wall for one in done if one.wall > 0), default=0.0)
    reasons: list[str] = []
    if lag.get("p99", 0.0) > LATE:
        reasons.append(f"its event loop was {lag['p99'] * 1000:.0f} ms late (p99)")
    if sends.get("p99", 0.0) > LATE:
        reasons.append(f"it began tasks {sends['p99'] * 1000:.0f} ms after their moment (p99)")
    if busiest > FULL:
        reasons.append(f"one of its processes used {busiest:.0%} of a core")
    return {
        "processes": len(done),
        "cpu_ms_per_call": round(cpu / calls * 1000, 4) if calls else 0.0,
        "cores": round(cpu / wall, 4) if wall else 0.0,
        "lag": lag,
        "sends": sends,
        "lagged": bool(reasons),
        "reasons": reasons,
    }


def of_parts(samples: Sequence[Sample]) -> dict[str, Any]:
    """Return what each part used between the first and the last sample: cores, bytes and their growth."""
    found: dict[str, Any] = {}
    for part in dict.fromkeys(part for sample in samples for part in sample.parts):
        seen = [(sample.at, sample.parts[part]) for sample in samples if part in sample.parts]
        (begun, first), (ended, last) = seen[0], seen[-1]
        seconds = ended - begun
        found[part] = {
            "cores": round((last.cpu - first.cpu) / seconds, 4) if seconds > 0 else 0.0,
            "memory": max(usage.memory for _, usage in seen),
            "memory_growth": _growth([usage.memory for _, usage in seen]),
            "processes": max(usage.processes for _, usage in seen),
        }
        # Of pods, the first sample may have been taken before they told.
        if descriptors := [usage.descriptors for _, usage in seen if usage.descriptors]:
            found[part]["descriptors"] = max(descriptors)
            found[part]["descriptors_growth"] = _growth(descriptors)
    return found


def beyond_runtime(pods: Sequence[Mapping[str, Any]], bare: Mapping[str, Any] | None) -> dict[str, float]:
    """Return what sandboxes and sidecars use, minus the use of as many bare pods if some run beside them."""
    cores: float = sum(part["cores"] for part in pods)
    if bare is not None:
        cores -= bare["cores"] * sum(part["processes"] for part in pods) / bare["processes"]
    return {"cores": round(cores, 4)}


def of_objects(samples: Sequence[Sample]) -> dict[str, Any]:
    """Return how many of each resource the API server stored: the maximum and the growth."""
    names = dict.fromkeys(name for sample in samples for name in sample.objects)
    counts = {name: [sample.objects[name] for sample in samples if name in sample.objects] for name in names}
    return {name: {"most": max(seen), "growth": _growth(seen)} for name, seen in counts.items()}


def _growth(values: Sequence[int]) -> float:
    """Return the last fifth over the second; the first is warm-up."""
    step = max(1, len(values) // 5)
    early = values[step : 2 * step] or values[:1]
    late = values[-step:]
    return round((sum(late) / len(late)) / max(sum(early) / len(early), 1.0), 4)


def of_baselines(taken: Baselines) -> dict[str, Any]:
    """Return for each baseline: quantiles of one caller, calls per second of many, spread of the rates."""
    found: dict[str, Any] = {}
    for name, one in taken.items():
        found[name] = quantiles(one.times) | {"count": len(one.times), "failures": one.failures}
        if one.rates:
            found[name] |= {
                "open": one.open,
                "rate": round(sum(one.rates) / len(one.rates), 3),
                "rates": [round(rate, 3) for rate in one.rates],
            }
        if one.lagged:
            found[name]["lagged"] = one.lagged
        if one.missing:
            found[name]["missing"] = one.missing
    return found


def lagged(phases: Mapping[str, Any], baselines: Mapping[str, Any]) -> list[str]:
    """Return a line for each phase and each baseline whose load generator, or whose callers of `pods/exec`, lagged."""
    found: list[str] = []
    for name, phase in phases.items():
        if phase["calls"] and phase["generator"]["lagged"]:
            found.append(f"{name}: {', '.join(phase['generator']['reasons'])}")
        if "pods_exec" in phase and phase["pods_exec"]["lagged"]:
            found.append(f"{name}, callers of pods/exec: {', '.join(phase['pods_exec']['reasons'])}")
    for name, one in baselines.items():
        if "lagged" in one:
            found.append(f"baseline {name}: {', '.join(one['lagged'])}")
    return found
