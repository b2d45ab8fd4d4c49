"""Prometheus' own rule tests of the rendered alerts: each fires under its fault, when it should, and no other does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chart.alerts import ALERTS, Alert, rendered
from tests.chart.faults import FAULTS, HARMLESS, ONE_IS_ENOUGH, SHORT, Fault
from tests.chart.healthy import END, HEALTHY, START, Series
from tests.chart.prometheus import promtool
from tests.chart.render import Resource, of_kind

NAMES = {alert["alert"] for alert in ALERTS}
CASES = (
    FAULTS
    | ONE_IS_ENOUGH
    | {f"short {name}": Fault(series, {}) for name, series in SHORT.items()}
    | {name: Fault(series, {}) for name, series in HARMLESS.items()}
)


@pytest.fixture
def rules(everything: list[Resource], tmp_path: Path) -> Path:
    """The rendered rules as a file of Prometheus'."""
    (rule,) = of_kind(everything, "PrometheusRule")
    path = tmp_path / "rules.json"
    path.write_text(json.dumps(rule["spec"]))
    return path


def test_prometheus_takes_the_rules(rules: Path) -> None:
    assert f"{len(NAMES)} rules found" in promtool("check", "rules", rules)


def test_each_alert_has_a_fault_and_one_that_is_too_short() -> None:
    assert {name for fault in FAULTS.values() for name in fault.alerts} == NAMES
    assert SHORT.keys() == NAMES - {name for fault in ONE_IS_ENOUGH.values() for name in fault.alerts}
    assert len(CASES) == len(FAULTS) + len(ONE_IS_ENOUGH) + len(SHORT) + len(HARMLESS)


def test_a_fault_replaces_series_that_there_are_or_adds_some_of_the_same_metrics() -> None:
    known = {name.partition("{")[0] for name in HEALTHY}
    assert {name.partition("{")[0] for fault in CASES.values() for name in fault.series} <= known


def test_exactly_the_alerts_of_a_fault_fire_and_in_time(
    rules: Path, everything: list[Resource], tmp_path: Path
) -> None:
    alerts = rendered(everything)
    files: list[Path] = []
    for name, fault in CASES.items():
        files.append(tmp_path / f"{name.replace(' ', '-')}.json")
        files[-1].write_text(json.dumps(rule_test(rules, alerts, fault)))
    promtool("test", "rules", *files)


def rule_test(rules: Path, alerts: dict[str, Alert], fault: Fault) -> dict[str, Any]:
    """One fault as a file of promtool's: what fires in each minute, and the texts when it begins."""
    firing = 'ALERTS{alertstate="firing"}'
    minutes = [
        {"eval_time": f"{minute}m", "expr": firing, "exp_samples": list(_samples(alerts, fault, minute))}
        for minute in range(END)
    ]
    texts = [
        {
            "eval_time": f"{START + firing.after}m",
            "alertname": name,
            "exp_alerts": [
                {
                    "exp_labels": alerts[name]["labels"] | labels,
                    "exp_annotations": _texts(alerts[name], labels),
                }
                for labels in firing.labels
            ],
        }
        for name, firing in fault.alerts.items()
    ]
    group = {
        "interval": "1m",
        "input_series": _written(HEALTHY | fault.series),
        "promql_expr_test": minutes,
        "alert_rule_test": texts,
    }
    return {"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": [group]}


def _samples(alerts: dict[str, Alert], fault: Fault, minute: int) -> Iterator[dict[str, Any]]:
    for name, firing in fault.alerts.items():
        if firing.after <= minute - START < firing.after + firing.minutes:
            for labels in firing.labels:
                shown = alerts[name]["labels"] | labels | {"alertname": name, "alertstate": "firing"}
                texts = ", ".join(f'{key}="{value}"' for key, value in shown.items())
                yield {"labels": f"ALERTS{{{texts}}}", "value": 1}


def _texts(alert: Alert, labels: dict[str, str]) -> dict[str, str]:
    return {name: _filled(text, labels) for name, text in alert["annotations"].items()}


def _filled(text: str, labels: dict[str, str]) -> str:
    return re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: labels[found[1]], text)


def _written(series: Series) -> list[dict[str, str]]:
    """As promtool reads them; a scrape that finds a series no more marks its end."""
    return [{"series": name, "values": " ".join(_words(values))} for name, values in series.items()]


def _words(values: list[float | None]) -> list[str]:
    words: list[str] = []
    for before, value in zip([None, *values], values, strict=False):
        words.append(f"{value:.0f}" if value is not None else "_" if before is None else "stale")
    return words
