"""What became of a suite, read from pytest's report: of ours, and of frameworks' own suites that a test of ours has run."""

from __future__ import annotations

import json
import xml.etree.ElementTree as xml
from dataclasses import asdict, dataclass, field
from pathlib import Path

OURS = "Sandlot's tests"
SUITE = "suite"  # name of the property of a test that has run a framework's own suite
MOST = 200  # characters of a reason


@dataclass
class Outcomes:
    """One suite's: how many tests passed, and why the others did not."""

    suite: str
    passed: int = 0
    skipped: dict[str, str] = field(default_factory=dict[str, str])  # module::test -> the first line of why
    failed: dict[str, str] = field(default_factory=dict[str, str])

    def as_text(self) -> str:
        return json.dumps(asdict(self))


def read(report: Path, *, suite: str = OURS) -> list[Outcomes]:
    """The outcomes of a JUnit report: first its own, then those of suites that its tests have run."""
    ours = Outcomes(suite)
    others: list[Outcomes] = []
    for case in xml.parse(report).getroot().iter("testcase"):
        for each in case.iter("property"):
            if each.get("name") == SUITE:
                others.append(Outcomes(**json.loads(each.get("value", ""))))
        name = f"{case.get('classname', '')}::{case.get('name', '')}"  # modules have tests of the same names
        bad = case.find("failure") if case.find("failure") is not None else case.find("error")
        left_out = case.find("skipped")
        if bad is not None:
            ours.failed[name] = _first_line(bad)
        elif left_out is not None:
            ours.skipped[name] = _first_line(left_out)
        else:
            ours.passed += 1
    return [ours, *others]


def _first_line(element: xml.Element) -> str:
    lines = (element.get("message") or element.text or "").strip().splitlines()
    return lines[0][:MOST] if lines else "no reason given"
