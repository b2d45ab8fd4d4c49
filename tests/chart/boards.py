"""The queries of the dashboards and alerts, asked of a real Prometheus that scrapes a real part."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.chart.alerts import ALERTS
from tests.chart.prometheus import Prometheus, Target, scraping
from tests.chart.render import CHART, Resource, of_kind
from tests.waiting import wait_until, wait_until_empty

BOARDS = {file.stem: json.loads(file.read_text()) for file in sorted((CHART / "dashboards").glob("*.json"))}
OF_PARTS = {"gateway": ("requests", "sandboxes"), "controller": ("controller",), "node-agent": ("nodes",)}
_METRICS = {
    "gateway": r"process_\w+|sandlot_(?!controller_|node_)\w+",
    "controller": r"process_\w+|sandlot_controller_\w+",
    "node-agent": r"sandlot_node_\w+",
}


@contextmanager
def watching(target: Target, resources: list[Resource], directory: Path) -> Iterator[Prometheus]:
    """A Prometheus with the rendered alerts that has read the target once."""
    (rule,) = of_kind(resources, "PrometheusRule")
    with scraping([target], rule["spec"]["groups"], directory) as server:
        scraped(server)
        yield server


def scraped(server: Prometheus) -> None:
    """Wait until Prometheus has read the target's metrics as they are now."""
    query = f"timestamp(up) > {time.time()} and up == 1"
    wait_until(lambda: server.query(query), what="the target is scraped")


def check_queries(server: Prometheus, part: str) -> None:
    """Each query of each panel of the part's boards must show a number, and each metric that an alert asks it for."""
    panels = [(board, panel) for board in OF_PARTS[part] for panel in BOARDS[board]["panels"]]
    asked = {
        target["expr"].replace("$namespace", ".*"): f"{board}: {panel['title']}"
        for board, panel in panels
        for target in panel["targets"]
    }
    # A scrape that a busy machine makes late leaves a gap, in which gauges show nothing.
    wait_until_empty(lambda: {asked[one]: one for one in asked if not _shows(server, one)}, pause=0.1)
    named = {name for alert in ALERTS for name in re.findall(r"\b(?:sandlot|process)_\w+", alert["expr"])}
    chosen = {name for name in named if re.fullmatch(_METRICS[part], name)}
    assert chosen
    wait_until_empty(lambda: {name for name in chosen if not _shows(server, name)}, pause=0.1)


def until_active(server: Prometheus, *alerts: str) -> None:
    """Wait until exactly these alerts' conditions hold: whether one fires already is a matter of its `for`."""

    def differences() -> set[str]:
        health = server.rules()
        assert "err" not in health.values(), health
        return server.active() ^ set(alerts)

    wait_until_empty(differences, pause=0.1)


def _shows(server: Prometheus, expression: str) -> bool:
    return any(not math.isnan(value) for _, value in server.query(expression))
