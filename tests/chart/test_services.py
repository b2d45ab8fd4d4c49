"""The chart's Services: which pods and ports each leads to, and who is to look at their metrics."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from sandlot_gateway.keys import Keys

from tests.chart.render import (
    CONTROLLER,
    GATEWAY,
    SANDBOXES,
    Resource,
    environment,
    of_kind,
    one,
    refusal,
    render,
    selected,
)


def test_services_lead_to_ports_that_the_containers_name(resources: list[Resource]) -> None:
    for name, more in ((GATEWAY, [f"{GATEWAY}-webhooks"]), (CONTROLLER, [])):
        services = [one(resources, "Service", each)["spec"] for each in (name, *more)]
        ports = [port for service in services for port in service["ports"]]
        (container,) = one(resources, "Deployment", name)["spec"]["template"]["spec"]["containers"]
        assert {port["targetPort"] for port in ports} == {each["name"] for each in container["ports"]}


def test_a_certificate_opens_a_second_door_and_readiness_looks_at_it() -> None:
    resources = render({"gateway": {"tls": {"existingSecret": "certificate"}}})
    deployment = one(resources, "Deployment", GATEWAY)
    env = environment(deployment)
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (mount,) = [each for each in container["volumeMounts"] if each["name"] == "tls"]
    (volume,) = [each for each in pod["volumes"] if each["name"] == "tls"]
    assert env["SANDLOT_TLS_CERT"] == f"{mount['mountPath']}/tls.crt"
    assert env["SANDLOT_TLS_KEY"] == f"{mount['mountPath']}/tls.key"
    assert volume["secret"]["secretName"] == "certificate"
    assert {"name": "https", "containerPort": int(env["SANDLOT_TLS_PORT"])} in container["ports"]
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "https", "scheme": "HTTPS"}
    assert container["livenessProbe"]["httpGet"]["port"] == "http"
    ports = {each["name"]: each["port"] for each in one(resources, "Service", GATEWAY)["spec"]["ports"]}
    assert ports == {"http": 8642, "https": 8643}
    # Sidecars go on to speak to the plain port.
    controller = environment(one(resources, "Deployment", CONTROLLER))
    assert controller["SANDLOT_WEBHOOK_URL"].startswith("http://")


def test_ssh_has_a_port_that_clients_are_told(defaults: list[Resource]) -> None:
    closed = one(defaults, "Service", GATEWAY)["spec"]["ports"]
    assert [port["name"] for port in closed] == ["http"]
    assert not [name for name in environment(one(defaults, "Deployment", GATEWAY)) if "SSH" in name]
    told = {"port": 30022, "host": "ssh.sandlot.example"}
    resources = render({"gateway": {"ssh": told, "service": {"type": "NodePort"}}})
    deployment = one(resources, "Deployment", GATEWAY)
    env = environment(deployment)
    assert (env["SANDLOT_SSH_PUBLIC_HOST"], env["SANDLOT_SSH_PUBLIC_PORT"]) == (told["host"], "30022")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert {"name": "ssh", "containerPort": int(env["SANDLOT_SSH_PORT"])} in container["ports"]
    port = next(each for each in one(resources, "Service", GATEWAY)["spec"]["ports"] if each["name"] == "ssh")
    assert port == {"name": "ssh", "port": 30022, "nodePort": 30022, "targetPort": "ssh"}


def test_udp_ports_are_those_of_the_service_the_gateway_and_the_policy(defaults: list[Resource]) -> None:
    assert "SANDLOT_UDP_PORTS" not in environment(one(defaults, "Deployment", GATEWAY))
    gateway = {"udp": {"first": 30500, "ports": 2}, "service": {"type": "NodePort"}}
    resources = render({"gateway": gateway})
    assert environment(one(resources, "Deployment", GATEWAY))["SANDLOT_UDP_PORTS"] == "30500-30501"
    ports = [each for each in one(resources, "Service", GATEWAY)["spec"]["ports"] if "protocol" in each]
    assert ports == [
        {"name": f"udp-{port}", "protocol": "UDP", "port": port, "targetPort": port, "nodePort": port}
        for port in (30500, 30501)
    ]
    rules = one(resources, "NetworkPolicy", GATEWAY)["spec"]["ingress"]
    assert {"protocol": "UDP", "port": 30500, "endPort": 30501} in rules[0]["ports"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"tls": {"existingSecret": "x"}, "service": {"port": 443, "tlsPort": 443}},
            "gateway.service.port and gateway.service.tlsPort are both 443",
        ),
        ({"ssh": {"port": 8642}}, "gateway.ssh.port and gateway.service.port are both 8642"),
        (
            {"ssh": {"port": 8643}, "tls": {"existingSecret": "x"}},
            "gateway.ssh.port and gateway.service.tlsPort are both 8643",
        ),
        (
            {"ssh": {"port": 30001}, "tcp": {"first": 30000, "ports": 2}},
            "gateway.ssh.port and a port of gateway.tcp are both 30001",
        ),
        (
            {"udp": {"first": 30009, "ports": 2}, "tcp": {"first": 30000, "ports": 10}},
            "a port of gateway.udp and a port of gateway.tcp are both 30009",
        ),
        (
            {"udp": {"first": 30500, "ports": 2}, "ssh": {"port": 30501}},
            "a port of gateway.udp and gateway.ssh.port are both 30501",
        ),
        (
            {"tcp": {"first": 8640, "ports": 5}},
            "a port of gateway.tcp and gateway.service.port are both 8642",
        ),
    ],
)
def test_each_door_has_a_port_of_its_own(values: dict[str, Any], said: str) -> None:
    assert said in refusal({"gateway": values})


def test_the_headless_service_is_off_and_names_pods_that_are_not_ready(defaults: list[Resource]) -> None:
    assert "sandboxes" not in {each["metadata"]["name"] for each in of_kind(defaults, "Service")}
    assert "SANDLOT_SUBDOMAIN" not in environment(one(defaults, "Deployment", CONTROLLER))
    named = render({"sandboxes": {"dnsNames": True}})
    service = one(named, "Service", "sandboxes")
    assert service["metadata"]["namespace"] == SANDBOXES
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert environment(one(named, "Deployment", CONTROLLER))["SANDLOT_SUBDOMAIN"] == "sandboxes"


def test_the_corefile_is_of_the_cluster_s_domain(defaults: list[Resource]) -> None:
    assert not [each for each in of_kind(defaults, "ConfigMap") if "Corefile" in each["data"]]
    values = {"coreDNS": {"corefile": True}, "clusterDomain": "k.example"}
    text = one(render(values), "ConfigMap", "sandlot-corefile")["data"]["Corefile"]
    assert "kubernetes k.example in-addr.arpa ip6.arpa {\n       pods disabled\n" in text
    assert "cluster.local" not in text


def test_monitors_find_the_services_and_the_key(everything: list[Resource]) -> None:
    for name in (GATEWAY, CONTROLLER):
        monitor = one(everything, "ServiceMonitor", name)
        wanted = monitor["spec"]["selector"]["matchLabels"]
        services = {
            each["metadata"]["name"]: each["metadata"]["labels"] for each in of_kind(everything, "Service")
        }
        assert selected(wanted, services) == {name}
        (endpoint,) = monitor["spec"]["endpoints"]
        assert endpoint["port"] in {
            each["name"] for each in one(everything, "Service", name)["spec"]["ports"]
        }
        assert monitor["metadata"]["labels"]["release"] == "prometheus"
    credentials = one(everything, "ServiceMonitor", GATEWAY)["spec"]["endpoints"][0]["authorization"][
        "credentials"
    ]
    secret = one(everything, "Secret", credentials["name"])["data"]
    # The gateway gives its metrics to such a key alone.
    key = base64.b64decode(secret[credentials["key"]]).decode()
    tenant = Keys([key]).find(key)
    assert tenant is not None
    assert tenant.operates
    enabled = {"enabled": True, "apiKeySecret": "scrape"}
    (endpoint,) = one(render({"serviceMonitor": enabled}), "ServiceMonitor", GATEWAY)["spec"]["endpoints"]
    assert endpoint["authorization"]["credentials"] == {"name": "scrape", "key": "api-key"}
    public = render({"serviceMonitor": enabled, "gateway": {"config": {"metricsPublic": True}}})
    (endpoint,) = one(public, "ServiceMonitor", GATEWAY)["spec"]["endpoints"]
    assert "authorization" not in endpoint
    assert environment(one(public, "Deployment", GATEWAY))["SANDLOT_METRICS_PUBLIC"] == "true"


def test_a_monitor_finds_the_node_agents_in_the_sandboxes_namespace(everything: list[Resource]) -> None:
    monitor = one(everything, "PodMonitor", "sandlot-node-agent")
    assert (
        monitor["metadata"]["namespace"]
        == one(everything, "ServiceMonitor", GATEWAY)["metadata"]["namespace"]
    )
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": [SANDBOXES]}
    agent = one(everything, "DaemonSet", "sandlot-node-agent")["spec"]["template"]
    others = [each["spec"]["template"] for each in of_kind(everything, "Deployment")]
    labels = {"agent": agent["metadata"]["labels"]} | {
        str(number): each["metadata"]["labels"] for number, each in enumerate(others)
    }
    assert selected(monitor["spec"]["selector"]["matchLabels"], labels) == {"agent"}
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint == {"port": "http", "path": "/metrics", "interval": "30s"}
    (container,) = agent["spec"]["containers"]
    assert endpoint["port"] in {each["name"] for each in container["ports"]}


def test_without_node_agents_nothing_looks_for_them() -> None:
    assert not of_kind(render({"serviceMonitor": {"enabled": True}}), "PodMonitor")
    assert not of_kind(render({"nodeAgent": {"enabled": True}}), "PodMonitor")
