"""Every query of dashboards, alerts and docs/metrics.md asks for a metric that there is, by labels it has."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import sandlot_controller
import sandlot_gateway
import sandlot_node

from tests import metrics_page
from tests.chart.alerts import ALERTS
from tests.chart.render import CHART, NAMESPACE, ROOT, Resource, of_kind

FILES = sorted((CHART / "dashboards").glob("*.json"))
# Prometheus adds these to whatever it scrapes.
FROM_OUTSIDE = {"namespace", "pod", "le"}
# Of every target: whether Prometheus can read it.
OF_PROMETHEUS = {"up"}
WORDS = {"sum", "max", "by", "rate", "histogram_quantile", "and", "on"}
WORDS |= {"absent", "changes", "increase", "avg_over_time", "or"}
OF_TYPE = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
SUFFIXES = {"live": ("",), **{kind.title(): suffixes for kind, suffixes in OF_TYPE.items()}}


@pytest.fixture(scope="module")
def metrics() -> dict[str, set[str]]:
    """The labels of every sample by its name, as the sources of gateway, controller and node agent make them."""
    found: dict[str, set[str]] = {}
    packages = (sandlot_gateway, sandlot_controller, sandlot_node)
    files = (Path(package.__file__).parent.rglob("*.py") for package in packages)
    for file in chain.from_iterable(files):
        for call in ast.walk(ast.parse(file.read_text())):
            if isinstance(call, ast.Call) and (made := _metric(call)):
                name, suffixes, labels = made
                found.update({name + suffix: found.get(name + suffix, set()) | labels for suffix in suffixes})
    return found


@pytest.fixture(scope="module")
def exported(metrics: dict[str, set[str]]) -> dict[str, set[str]]:
    """With what the Prometheus client and Prometheus itself add."""
    process = {
        name + suffix: set(labels)
        for name, (kind, labels) in metrics_page.documented("Gateway").items()
        if name.startswith("process_")
        for suffix in OF_TYPE[kind]
    }
    return metrics | process | {name: set[str]() for name in OF_PROMETHEUS}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_queries_ask_for_what_there_is(file: Any, metrics: dict[str, set[str]]) -> None:
    expressions = list(_expressions(json.loads(file.read_text())))
    assert expressions
    _check(expressions, metrics)


def test_the_page_s_queries_ask_for_what_there_is(metrics: dict[str, set[str]]) -> None:
    _check(metrics_page.queries(), metrics)


def test_autoscaler_examples_ask_for_what_there_is(metrics: dict[str, set[str]]) -> None:
    text = (ROOT / "docs/pool-scaling.md").read_text()
    expressions = re.findall(r"(?:seriesQuery|query): '([^']+)'", text)
    assert len(expressions) == 2
    _check(expressions, metrics)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_alerts_ask_for_what_there_is(alert: Any, exported: dict[str, set[str]]) -> None:
    _check([alert["expr"]], exported)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_texts_of_an_alert_name_labels_that_its_query_keeps(alert: Any) -> None:
    named = {
        label for text in alert["annotations"].values() for label in re.findall(r"\$labels\.(\w+)", text)
    }
    groups = re.findall(r"(?:sum|max) by \(([^)]*)\)", alert["expr"])
    kept = {label.strip() for group in groups for label in group.split(",")} if groups else {"pod"}
    assert named <= kept


def test_the_page_tells_the_labels_that_the_sources_give(metrics: dict[str, set[str]]) -> None:
    told = {
        name + suffix: set(labels)
        for program in ("Gateway", "Controller", "Node agent")
        for name, (kind, labels) in metrics_page.documented(program).items()
        if not name.startswith("process_")  # the Prometheus client's own, which no source of ours names
        for suffix in OF_TYPE[kind]
    }
    assert told == metrics


def _check(expressions: list[str], metrics: dict[str, set[str]]) -> None:
    for expression in expressions:
        names = set(re.findall(r"\b(?:(?:sandlot|process)_\w+|up(?=\{))", expression))
        assert names, expression
        assert names <= metrics.keys(), expression
        known = set.union(*(metrics[name] for name in names)) | FROM_OUTSIDE
        asked = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", expression)
        grouped = re.findall(r"(?:by|on) \(([^)]*)\)", expression)
        assert {*asked, *(label.strip() for group in grouped for label in group.split(","))} <= known, (
            expression
        )
        plain = re.sub(r'"[^"]*"|\{[^}]*\}|(?:by|on) \([^)]*\)|\[[^]]*\]', " ", expression)
        assert set(re.findall(r"[a-z_]+", plain)) <= names | WORDS, expression
        assert all(expression.count(left) == expression.count(right) for left, right in ("()", "{}", "[]"))


def test_what_alerts_ask_for_is_on_a_dashboard() -> None:
    shown = {name for file in FILES for name in re.findall(r"sandlot_\w+", file.read_text())}
    assert {name for alert in ALERTS for name in re.findall(r"sandlot_\w+", alert["expr"])} <= shown


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_legends_use_labels_that_the_query_keeps(file: Any) -> None:
    for panel in json.loads(file.read_text())["panels"]:
        for target in panel["targets"]:
            kept = {
                label.strip()
                for group in re.findall(r"by \(([^)]*)\)", target["expr"])
                for label in group.split(",")
            }
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= kept, target


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_panels_do_not_overlap_and_have_ids_of_their_own(file: Any) -> None:
    panels = json.loads(file.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


def test_each_is_a_config_map_as_it_is(defaults: list[Resource], everything: list[Resource]) -> None:
    assert of_kind(defaults, "ConfigMap") == []
    maps = [each for each in of_kind(everything, "ConfigMap") if "-dashboard-" in each["metadata"]["name"]]
    assert all(each["metadata"]["namespace"] == NAMESPACE for each in maps)
    assert all(each["metadata"]["labels"]["grafana_dashboard"] == "1" for each in maps)
    contents = {name: json.loads(text) for each in maps for name, text in each["data"].items()}
    assert contents == {file.name: json.loads(file.read_text()) for file in FILES}


def _metric(call: ast.Call) -> tuple[str, tuple[str, ...], set[str]] | None:
    """Name, suffixes of samples and labels, where this call makes a metric."""
    function = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    first = call.args[0] if call.args else None
    if (
        function not in SUFFIXES
        or not isinstance(first, ast.Constant)
        or not str(first.value).startswith("sandlot_")
    ):
        return None
    labels: set[str] = set()
    if function != "live" and len(call.args) > 2:
        labels = set(ast.literal_eval(call.args[2]))
    for keyword in call.keywords:
        if keyword.arg == "label" and isinstance(keyword.value, ast.Tuple):
            labels = {ast.literal_eval(keyword.value.elts[0])}
    return str(first.value), SUFFIXES[function], labels


def _expressions(dashboard: dict[str, Any]) -> Iterator[str]:
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield target["expr"]
    for variable in dashboard["templating"]["list"]:
        if match := re.match(r"label_values\((\w+),", variable["query"]):
            yield match[1]
