"""The chart's alerts as data: those of its file, and those that a rendered chart has."""

from __future__ import annotations

from typing import Any

import yaml

from tests.chart.render import CHART, Resource, of_kind

Alert = dict[str, Any]
GROUPS: list[dict[str, Any]] = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())["groups"]
ALERTS: list[Alert] = [alert for group in GROUPS for alert in group["rules"]]


def rendered(resources: list[Resource]) -> dict[str, Alert]:
    """Those of the only PrometheusRule, by name."""
    (rule,) = of_kind(resources, "PrometheusRule")
    return {alert["alert"]: alert for group in rule["spec"]["groups"] for alert in group["rules"]}
