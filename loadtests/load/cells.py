"""Rows that both the terminal's table and the report show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sandlot_grade.report.scale import seconds


def baseline_cells(name: str, found: dict[str, Any]) -> tuple[str, ...]:
    """Return name, calls, p50, p99, calls per second of many callers, what is missing or failed; empty if not measured."""
    return (
        name,
        str(found["count"]),
        seconds(found["p50"]) if "p50" in found else "",
        seconds(found["p99"]) if "p99" in found else "",
        f"{found['rate']:.1f}" if "rate" in found else "",
        found.get("missing", "")
        or ", ".join(
            f"{found[name]} {text}"
            for name, text in (("failures", "failed"), ("open", "not ended in time"))
            if found.get(name)
        ),
    )


def caller_lines(found: dict[str, Any]) -> Iterator[str]:
    """Return what became of the calls of `pods/exec` beside a phase's own, and how its callers' processes did."""
    if told := found.get("pods_exec"):
        for kind in ("exec", "pods_exec"):
            if of_it := found["kinds"].get(kind):
                yield f"{kind}: {of_it['failed']} failed, {of_it['open']} had not ended when no more began"
        late = f", their loop {seconds(told['lag']['p99'])} late (p99)" if told["lag"] else ""
        yield f"{told['processes']} processes of pods/exec, {told['cores']:.2f} cores{late}"


def fault_lines(found: dict[str, Any]) -> Iterator[str]:
    """Return what was broken in a phase, when, and for how long."""
    for fault in found.get("faults", ()):
        away = seconds(fault["away"])
        yield f"{fault['kill']} killed {fault['at']:.1f} s after the run's beginning, whole after {away}"


def dataset_lines(found: dict[str, Any]) -> Iterator[str]:
    """Return what a phase took for its images, and how its warm-up went."""
    if warm := found.get("warm_up"):
        parts = [
            f"{warm['ready']} of {warm['images']} ready in {warm['copies']} copies after {seconds(warm['seconds'])}"
        ]
        if warm["estimate"] is not None:
            parts.append(f"estimate at half of them ÷ the time then left {warm['estimate']:.2f}")
        yield "; ".join([*parts, *warm["errors"]])
    if told := found.get("dataset"):
        words = {"images_used": "different images", "images_prepared": "prepared", "pods": "pods created"}
        parts = [f"{told[name]} {text}" for name, text in words.items() if name in told]
        sizes = {"bytes_pulled": "pulled", "image_bytes": "on disk"}
        parts += [f"{told[name] / (1 << 20):.1f} MiB {text}" for name, text in sizes.items() if name in told]
        yield ", ".join(parts)


def rollout_lines(found: dict[str, Any]) -> Iterator[str]:
    """Return what became of a phase's rollouts, and what they waited for their sandboxes."""
    if told := found.get("rollouts"):
        yield (
            f"{told['scored']} of {told['count']} rollouts scored, {told['masked']} masked, {told['kills']} sandboxes "
            f"killed; waited {told['share']:.2%} of {seconds(told['seconds'])}, create {seconds(told['create'])}, of "
            f"which {seconds(told['create_not_hidden'])} not hidden"
        )


def stranger_lines(found: dict[str, Any]) -> Iterator[str]:
    """Return what code without a credential did in a phase, and its cost to a gateway."""
    if told := found.get("strangers"):
        yield (
            f"{told['held']} of {told['connections']} connections held, {told['opened']} opened, "
            f"{told['refused']} refused; a gateway grew by {told['grown_mib']:.1f} MiB"
        )


def figure_lines(found: dict[str, Any]) -> Iterator[str]:
    """Return what a phase of groups, forks or a fair share counted."""
    if told := found.get("figures"):
        yield ", ".join(f"{name} {value:g}" for name, value in told.items())
