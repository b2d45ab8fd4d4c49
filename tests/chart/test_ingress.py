"""Ingress and HTTPRoute: off by default, lead to the gateway's plain port, and what is missing is named."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart.render import (
    CHART,
    GATEWAY,
    NAMESPACE,
    RELEASE,
    Resource,
    helm,
    of_kind,
    one,
    refusal,
    render,
)

HOSTS = ["sandlot.example", "*.sandlot.example"]
ROUTE: dict[str, Any] = {
    "enabled": True,
    "hosts": HOSTS,
    "parentRefs": [{"name": "public", "namespace": "gateways", "sectionName": "https"}],
}


def test_there_is_none_by_default(defaults: list[Resource]) -> None:
    assert of_kind(defaults, "Ingress") + of_kind(defaults, "HTTPRoute") == []


def test_an_ingress_leads_every_host_to_the_plain_port(everything: list[Resource]) -> None:
    ingress = one(everything, "Ingress", GATEWAY, namespace=NAMESPACE)
    assert ingress["metadata"]["annotations"] == {"example.com/timeout": "3600"}
    spec = ingress["spec"]
    assert spec["ingressClassName"] == "nginx"
    assert spec["tls"] == [{"hosts": HOSTS, "secretName": "wildcard"}]
    assert [rule["host"] for rule in spec["rules"]] == HOSTS
    service = one(everything, "Service", GATEWAY)
    ports = {port["name"]: port["targetPort"] for port in service["spec"]["ports"]}
    for rule in spec["rules"]:
        (path,) = rule["http"]["paths"]
        backend = path["backend"]["service"]
        assert (path["path"], path["pathType"], backend["name"]) == ("/", "Prefix", GATEWAY)
        assert ports[backend["port"]["name"]] == "http"


def test_an_ingress_without_class_and_certificate_names_neither() -> None:
    resources = render({"gateway": {"ingress": {"enabled": True, "hosts": HOSTS[:1]}}})
    assert one(resources, "Ingress", GATEWAY)["spec"].keys() == {"rules"}


def test_a_route_has_the_time_limit_and_annotations_of_the_values(everything: list[Resource]) -> None:
    route = one(everything, "HTTPRoute", GATEWAY)
    assert route["metadata"]["annotations"] == {"example.com/a": "b"}
    assert route["spec"]["rules"][0]["timeouts"] == {"request": "2h"}


def test_a_route_leads_every_host_to_the_service_s_port() -> None:
    resources = render({"gateway": {"httpRoute": ROUTE, "service": {"port": 80}}})
    spec = one(resources, "HTTPRoute", GATEWAY, namespace=NAMESPACE)["spec"]
    assert (spec["parentRefs"], spec["hostnames"]) == (ROUTE["parentRefs"], HOSTS)
    (rule,) = spec["rules"]
    assert rule["timeouts"] == {"request": "0s"}
    assert rule["backendRefs"] == [{"name": GATEWAY, "port": 80}]
    assert rule["matches"] == [{"path": {"type": "PathPrefix", "value": "/"}}]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"ingress": {"enabled": True}}, "gateway.ingress.hosts is empty"),
        ({"httpRoute": {**ROUTE, "hosts": []}}, "gateway.httpRoute.hosts is empty"),
        ({"httpRoute": {**ROUTE, "parentRefs": []}}, "gateway.httpRoute.parentRefs is empty"),
        ({"ingress": {"enabled": True, "hosts": ["a.*.example"]}}, "hosts/0"),
        ({"httpRoute": {**ROUTE, "parentRefs": [{"namespace": "gateways"}]}}, "parentRefs/0"),
        ({"httpRoute": {**ROUTE, "timeout": "1 hour"}}, "timeout"),
    ],
)
def test_what_is_missing_or_wrong_is_named(values: dict[str, Any], message: str) -> None:
    assert message in refusal({"gateway": values})


@pytest.mark.parametrize(
    ("ingress", "url"),
    [({"tlsSecret": "wildcard"}, "https://sandlot.example"), ({}, "http://sandlot.example")],
)
def test_what_the_install_prints_has_the_urls(ingress: dict[str, Any], url: str) -> None:
    values: dict[str, Any] = {"ingress": {"enabled": True, "hosts": HOSTS, **ingress}}
    assert f"By the Ingress:\n  {url}\n" in notes(values)
    assert "Set gateway.config.publicUrl" in notes(values)
    route = notes({"httpRoute": ROUTE, "config": {"publicUrl": "https://sandlot.example"}})
    assert "By the HTTPRoute:\n  https://sandlot.example\n  https://*.sandlot.example\n" in route
    assert "Set gateway.config.publicUrl" not in route


def notes(gateway: dict[str, Any]) -> str:
    command = "install", RELEASE, str(CHART), "-n", NAMESPACE, "--dry-run=client"
    return helm(*command, values={"gateway": gateway}).stdout.partition("NOTES:")[2]
