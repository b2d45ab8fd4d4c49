"""The chart's PrometheusRule has each alert of its file, with a paragraph in docs/alerts.md."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.chart.alerts import ALERTS, GROUPS, rendered
from tests.chart.render import NAMESPACE, ROOT, SANDBOXES, Resource, of_kind, refusal, render

PAGE = (ROOT / "docs" / "alerts.md").read_text()
NAMES = [alert["alert"] for alert in ALERTS]


def test_there_are_none_by_default(defaults: list[Resource]) -> None:
    assert of_kind(defaults, "PrometheusRule") == []


def test_they_are_one_resource_that_prometheus_selects(everything: list[Resource]) -> None:
    (rule,) = of_kind(everything, "PrometheusRule")
    assert rule["metadata"]["namespace"] == NAMESPACE
    assert rule["metadata"]["labels"].items() >= {"release": "prometheus", "team": "rl"}.items()
    assert list(rendered(everything)) == NAMES
    assert len(set(NAMES)) == len(NAMES)


def test_without_node_agents_there_are_none_of_them() -> None:
    found = rendered(render({"alerts": {"enabled": True}}))
    assert list(found) == [alert["alert"] for alert in GROUPS[0]["rules"]]


def test_they_ask_only_for_the_installation_s_namespaces(everything: list[Resource]) -> None:
    texts = [alert["expr"] for alert in rendered(everything).values()]
    assert all("$" not in text for text in texts)
    selectors = [
        each for text in texts for each in re.findall(r"\b(?:sandlot|process|up)\w*(\{[^}]*\})?", text)
    ]
    assert {re.findall(r'\bnamespace="([^"]*)"', each)[0] for each in selectors} == {NAMESPACE, SANDBOXES}


def test_they_ask_for_the_pods_of_the_release() -> None:
    values = {"alerts": {"enabled": True}, "fullnameOverride": "boxes"}
    asked = {
        pod
        for alert in rendered(render(values)).values()
        for pod in re.findall(r'pod=~"([^"]*)"', alert["expr"])
    }
    assert asked == {"boxes-(gateway|controller)-.+"}


def test_what_is_not_among_the_failed_requests_is_not_subtracted_from_them() -> None:
    (expr,) = [alert["expr"] for alert in ALERTS if alert["alert"] == "SandlotRequestsFail"]
    selectors = re.findall(r"\bsandlot_\w+\{([^}]*)\}", expr)
    assert len(selectors) == 3
    assert all('route!="expose"' in each for each in selectors)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_each_says_how_bad_it_is_and_what_it_means(alert: Any) -> None:
    assert alert["labels"]["severity"] in ("warning", "critical")
    assert alert["annotations"].keys() == {"summary", "description"}


def test_a_runbook_s_url_leads_to_its_paragraph(everything: list[Resource]) -> None:
    for name, alert in rendered(everything).items():
        assert alert["annotations"]["runbook_url"] == f"https://docs.example/alerts.html#{name.lower()}"


def test_without_a_url_there_is_no_annotation_of_it() -> None:
    found = rendered(render({"alerts": {"enabled": True}}))
    assert all("runbook_url" not in alert["annotations"] for alert in found.values())


def test_a_url_is_one() -> None:
    assert "/alerts/runbookUrl" in refusal({"alerts": {"runbookUrl": "docs/alerts.md"}})


def test_the_page_has_each_in_order() -> None:
    assert re.findall(r"^## (.+)$", PAGE, re.MULTILINE) == [*NAMES, "Tested faults"]


@pytest.mark.parametrize(
    ("where", "files"),
    [("cluster", "kubernetes/test_alerts_live.py"), ("one machine", "chart/test_*_board*.py")],
    ids=["cluster", "one machine"],
)
def test_the_page_tells_where_tests_see_each(where: str, files: str) -> None:
    rows = re.findall(r"^\| (Sandlot\w+) \| ([^|]+) \| [^|]+ \|$", PAGE, re.MULTILINE)
    assert [name for name, _ in rows] == NAMES
    texts = [file.read_text() for file in (ROOT / "tests").glob(files)]
    # What a Prometheus without any other part notices is no fault, and what may follow need not fire.
    beside = r"OTHERS = .*|\bmay\s*=\s*\([^)]*\)"
    named = {name for text in texts for name in re.findall(r'"(Sandlot\w+)', re.sub(beside, "", text))}
    assert {name for name, seen in rows if where in seen.split(", ")} == named


@pytest.mark.parametrize("name", NAMES)
def test_a_paragraph_says_what_it_means_how_to_look_and_what_to_do(name: str) -> None:
    text = PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\*\*(\w+):\*\*", text, re.MULTILINE) == ["Rollouts", "Look", "Do"]
