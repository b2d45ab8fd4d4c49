"""Counts the skipped tests by reason at the end of a run."""

from __future__ import annotations

from collections import Counter

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = terminalreporter.stats.get("skipped", [])
    # `longrepr` of a skip is (path, line, "Skipped: reason").
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in reports)
    if reasons:
        terminalreporter.section(f"skipped: {reasons.total()}")
        for reason, count in reasons.most_common():
            terminalreporter.line(f"{count:6} {reason}")
