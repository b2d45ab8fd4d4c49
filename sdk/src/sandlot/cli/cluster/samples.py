"""Samples of a metrics page in Prometheus' text format."""

from __future__ import annotations

import re

_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def samples(page: str, name: str) -> list[tuple[dict[str, str], float]]:
    """Return labels and value of each sample of this name."""
    found: list[tuple[dict[str, str], float]] = []
    for line in page.splitlines():
        matched = _SAMPLE.match(line)
        if matched is not None and matched[1] == name:
            found.append((dict(_LABEL.findall(matched[2] or "")), float(matched[3])))
    return found


def total(page: str, name: str, **labels: str) -> float:
    """Return the sum of the samples that have these labels."""
    return sum(value for have, value in samples(page, name) if labels.items() <= have.items())
