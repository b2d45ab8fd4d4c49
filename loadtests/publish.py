"""Publishes the last load test reports: `python -m loadtests.publish NAME [REPORTS]` writes docs/performance/NAME.md.

The page and the figures in the folder beside it are wholly generated; what they mean is said in docs/performance.md. A
profile that has no report keeps what the page has of it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandlot_grade.report.scale import seconds

from loadtests.load.cells import dataset_lines, fault_lines, figure_lines, rollout_lines, stranger_lines

DOCS = Path(__file__).resolve().parents[1] / "docs"
PLOTS = {"latency-over-time": "latency over time", "latency-by-share-of-calls": "latency by share of calls"}
NAMES = ("local", "runc", "gvisor")
# The baselines to compare with: a spawn beside the generator, in a cluster the API server's own `pods/exec`.
COMPARED = {"pods_exec": "`pods/exec`", "spawn": "bare spawn"}
MIB = 1 << 20
# What the command of a page's runs has beside the profile.
_TARGETS = {
    "local": ("loadtest", ()),
    "runc": ("loadtest-cluster", ()),
    "gvisor": ("loadtest-cluster", ("--runtime gvisor",)),
}


class PublishError(Exception):
    """No page was written; the message says why."""


@dataclass(frozen=True, slots=True)
class Part:
    """One profile on a page: its lines in the table of bounds, and its own section."""

    bounds: Sequence[str]
    section: Sequence[str]


def page(name: str, summaries: Sequence[dict[str, Any]], *, earlier: Mapping[str, Part]) -> Iterator[str]:
    """Yield the lines of a page: a table of all bounds, then each profile with its calls and plots."""
    parts = {**earlier, **{told["profile"]: _part(name, told) for told in summaries}}
    places = dict.fromkeys(told["place"]["name"] for told in summaries)
    machines = dict.fromkeys(_machine(told["machine"]) for told in summaries)
    yield from (f"# Load tests: {name}", "")
    yield (
        f"Written by `python -m loadtests.publish`: the last run of each profile on {' and '.join(places)}; "
        f"{'; '.join(machines)}. Its section has its date and its command; parameters that are not the profile's own were set "
        "by `--set`. [Performance](../performance.md) says what to read in it, [load tests](../loadtests.md) how it is "
        "measured."
    )
    yield from ("", "| profile | what | bound | measured |", "|---|---|---|---|")
    for _, part in sorted(parts.items()):
        yield from part.bounds
    for profile, part in sorted(parts.items()):
        yield from ("", f"## {profile}", *part.section)


def _part(name: str, told: dict[str, Any]) -> Part:
    bounds: list[str] = []
    for row in told["bounds"]:
        value = "none" if row["value"] is None else f"{row['value']:.3g} {row['unit']}".strip()
        measured = value if row["held"] else f"**missed**: {value}"
        limit = f"{row['limit']} {row['unit']}".strip()
        bounds.append(f"| `{told['profile']}` | {row['what']} | {limit} | {measured} |")
    plots = " ".join(
        f"![{told['profile']}: {words}]({name}/{told['profile']}-{plot}.svg)" for plot, words in PLOTS.items()
    )
    section = [
        "",
        f"{told['what']} {_run(name, told)} {_how(told)}",
        "",
        *_calls(told),
        "",
        *_parts(told),
        "",
        plots,
    ]
    return Part(bounds=bounds, section=section)


def _earlier(text: str) -> dict[str, Part]:
    """Return the profiles of a page."""
    head, *sections = text.rstrip("\n").split("\n\n## ")
    rows = head.splitlines()
    found: dict[str, Part] = {}
    for section in sections:
        profile, *lines = section.split("\n")
        bounds = [row for row in rows if row.startswith(f"| `{profile}` |")]
        found[profile] = Part(bounds=bounds, section=lines)
    return found


def _machine(told: dict[str, Any]) -> str:
    return f"{told['cores']} cores, {told['kernel']}, Python {told['python']}"


def _run(name: str, told: dict[str, Any]) -> str:
    """Say when it ran, and by what; parameters with other values than the profile's follow on the page."""
    target, words = _TARGETS[name]
    words += ("--peers",) if "swerex" in told["baselines"] else ()
    words += ("--short",) if told["short"] else ()
    arguments = f' ARGS="{" ".join(words)}"' if words else ""
    return f"{told['began'][:10]}, `make {target} PROFILE={told['profile']}{arguments}`."


def _how(told: dict[str, Any]) -> str:
    parameters = ", ".join(f"{name} {value}" for name, value in told["parameters"].items())
    broken = "; ".join(line for found in told["phases"].values() for line in fault_lines(found))
    came = "; ".join(line for found in told["phases"].values() for line in stranger_lines(found))
    images = "; ".join(
        f"{phase}: {line}" for phase, found in told["phases"].items() for line in dataset_lines(found)
    )
    figures = "; ".join(
        f"{phase}: {line}"
        for phase, found in told["phases"].items()
        for line in (*figure_lines(found), *rollout_lines(found))
    )
    lagged = "; ".join(told["lagged"])
    said = (
        *((broken, "Faults"), (came, "Strangers"), (images, "Images"), (figures, "Figures")),
        (lagged, "The generator lagged"),
    )
    length = "Its short version. " if told["short"] else ""
    return f"{length}Parameters: {parameters}." + "".join(f" {what}: {text}." for text, what in said if text)


def _calls(told: dict[str, Any]) -> Iterator[str]:
    """Return calls and baselines with their times, also as multiples of the place's first baseline."""
    words, one = next(
        (words, told["baselines"][name]["p50"])
        for name, words in COMPARED.items()
        if "p50" in told["baselines"].get(name, {})
    )
    yield from (f"| | calls | a second | p50 | p99 | p50 ÷ {words} |", "|---|---|---|---|---|---|")
    for phase, found in told["phases"].items():
        for kind, of_it in found["kinds"].items():
            if of_it["latency"]:
                name = f"{phase}: {kind}"
                yield _row(name, of_it["ok"], of_it["rate"], of_it["latency"], one)
    for name, found in told["baselines"].items():
        if "p50" in found:
            yield _row(f"baseline: {name}", found["count"], found.get("rate"), found, one)


def _row(name: str, count: int, rate: float | None, times: dict[str, float], one: float) -> str:
    a_second = "" if rate is None else f"{rate:.4g}"
    p50, p99 = times["p50"], times["p99"]
    ratio = p50 / one
    multiple = f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"
    return f"| {name} | {count} | {a_second} | {seconds(p50)} | {seconds(p99)} | {multiple} |"


def _parts(told: dict[str, Any]) -> Iterator[str]:
    """Return what each part used in the longest phase."""
    phase, found = max(told["phases"].items(), key=lambda each: each[1]["seconds"])
    yield from (f"| {phase}: part | cores | memory, most | growth | processes |", "|---|---|---|---|---|")
    for part, used in found["parts"].items():
        memory, growth = used["memory"] / MIB, used["memory_growth"]
        yield f"| {part} | {used['cores']:.3f} | {memory:.0f} MiB | {growth:.2f} × | {used['processes']} |"


def publish(name: str, reports: Path, docs: Path = DOCS) -> Path:
    """Write the page and return its path. Raises PublishError."""
    found = sorted(reports.glob("*/summary.json"))
    if not found:
        raise PublishError(f"{reports}: no summary.json in its folders; `make loadtest` writes them")
    summaries = [json.loads(path.read_text()) for path in found]
    figures = docs / "performance" / name
    figures.mkdir(parents=True, exist_ok=True)
    for path, told in zip(found, summaries, strict=True):
        for plot in PLOTS:
            shutil.copyfile(
                path.parent / "figures" / f"{plot}.svg", figures / f"{told['profile']}-{plot}.svg"
            )
    written = figures.with_suffix(".md")
    earlier = _earlier(written.read_text()) if written.exists() else {}
    text = "\n".join(page(name, summaries, earlier=earlier)) + "\n"
    written.write_text(text)
    for figure in figures.glob("*.svg"):
        if f"({name}/{figure.name})" not in text:
            figure.unlink()
    return written


def main(
    write: Callable[[str, Path], Path],
    *,
    names: Sequence[str],
    what: str,
    reports: str,
    description: str | None,
) -> int:
    """Run the command line of a program that publishes: `write` gets one of the names and the folder of the reports."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("name", choices=names, help=what)
    parser.add_argument("reports", type=Path, nargs="?", default=Path(reports))
    given = parser.parse_args()
    try:
        print(write(given.name, given.reports))
    except PublishError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(
        main(
            publish, names=NAMES, what="what the page is called", reports="reports/load", description=__doc__
        )
    )
