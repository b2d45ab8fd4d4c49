"""What the Prometheus operator makes of the chart's monitors and rules: scrapes of what is found, with the same labels.

Time goes faster in these tests: scrapes come ten times as often, and each `for` is 30 times shorter, but no shorter than
a slow machine needs. Expressions stay as they are, with their ranges.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.chart.render import Resource, of_kind
from tests.kubernetes.discovery import META, label

SPEED = 30
OFTEN = 10  # an interval of 3 s: a server scrapes no sooner than the time for an answer, which a slow machine takes
LEAST = 12  # seconds that an alert waits, however short its `for`
Relabelling = dict[str, Any]
_UNITS = {"s": 1, "m": 60, "h": 3600}


def configuration(
    resources: list[Resource], *, discovery: str, secret: Callable[[str, str], str]
) -> dict[str, Any]:
    """Of a Prometheus that asks `discovery` for the pods of all monitors. `secret`: the value of a Secret's key."""
    jobs = [
        _of_services(monitor, endpoint, discovery, secret)
        for monitor in of_kind(resources, "ServiceMonitor")
        for endpoint in monitor["spec"]["endpoints"]
    ]
    jobs += [
        _of_pods(monitor, endpoint, discovery)
        for monitor in of_kind(resources, "PodMonitor")
        for endpoint in monitor["spec"]["podMetricsEndpoints"]
    ]
    return {
        "global": {"evaluation_interval": "1s", "scrape_timeout": "3s", "scrape_interval": "3s"},
        "rule_files": ["/etc/prometheus/rules.json"],
        "scrape_configs": jobs,
    }


def rules(resources: list[Resource]) -> dict[str, Any]:
    """Those of the PrometheusRule, each `for` shortened."""
    (rule,) = of_kind(resources, "PrometheusRule")
    groups = [
        {**group, "rules": [_sooner(alert) for alert in group["rules"]]} for group in rule["spec"]["groups"]
    ]
    return {"groups": groups}


def _sooner(alert: dict[str, Any]) -> dict[str, Any]:
    if "for" not in alert:
        return alert
    return {**alert, "for": f"{max(_seconds(alert['for']) // SPEED, LEAST)}s"}


def _seconds(text: str) -> int:
    found = re.fullmatch(r"(\d+)([smh])", text)
    assert found is not None, text
    return int(found[1]) * _UNITS[found[2]]


def _of_services(
    monitor: Resource, endpoint: dict[str, Any], discovery: str, secret: Callable[[str, str], str]
) -> dict[str, Any]:
    chosen = [
        _keep(f"service_label_{label(name)}", value)
        for name, value in monitor["spec"]["selector"]["matchLabels"].items()
    ]
    chosen.append(_keep("endpointslice_port_name", endpoint["port"]))
    job = _job(monitor, endpoint, discovery, chosen)
    job["relabel_configs"] += [
        _copy("service_name", "service"),
        _copy("service_name", "job"),
    ]
    if "authorization" in endpoint:
        asked = endpoint["authorization"]
        key = secret(asked["credentials"]["name"], asked["credentials"]["key"])
        job["authorization"] = {"type": asked["type"], "credentials": key}
    return job


def _of_pods(monitor: Resource, endpoint: dict[str, Any], discovery: str) -> dict[str, Any]:
    chosen = [
        _keep(f"pod_label_{label(name)}", value)
        for name, value in monitor["spec"]["selector"]["matchLabels"].items()
    ]
    chosen.append(_keep("pod_container_port_name", endpoint["port"]))
    return _job(monitor, endpoint, discovery, chosen)


def _job(
    monitor: Resource, endpoint: dict[str, Any], discovery: str, chosen: list[Relabelling]
) -> dict[str, Any]:
    own = monitor["metadata"]["namespace"]
    namespaces = monitor["spec"].get("namespaceSelector", {}).get("matchNames", [own])
    urls = [f"{discovery}/{monitor['kind']}?namespace={each}" for each in namespaces]
    return {
        "job_name": f"{monitor['kind']}/{own}/{monitor['metadata']['name']}",
        "metrics_path": endpoint["path"],
        "scrape_interval": f"{_seconds(endpoint['interval']) // OFTEN}s",
        "http_sd_configs": [{"url": url, "refresh_interval": "1s"} for url in urls],
        "relabel_configs": [
            *chosen,
            {
                "action": "drop",
                "source_labels": [f"{META}pod_phase"],
                "regex": "Failed|Succeeded",
            },
            _copy("namespace", "namespace"),
            _copy("pod_name", "pod"),
            _copy("pod_container_name", "container"),
            {"target_label": "endpoint", "replacement": endpoint["port"]},
        ],
    }


def _keep(source: str, value: str) -> Relabelling:
    return {"action": "keep", "source_labels": [f"{META}{source}"], "regex": re.escape(value)}


def _copy(source: str, target: str) -> Relabelling:
    return {"source_labels": [f"{META}{source}"], "target_label": target}
