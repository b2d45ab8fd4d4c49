"""A real controller leads clients to a gateway by the chart's Ingress and HTTPRoute, with what the guide says to set."""

from __future__ import annotations

import base64
import os
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.cable import cable
from tests.chart import gateway_api
from tests.chart.pages import fences
from tests.chart.render import GATEWAY, ROOT, of_kind, one, render
from tests.chart.traefik import CLASSES, CONTROLLER, Traefik, traefik
from tests.kube.apiserver import ApiServer
from tests.stack import Stack, private_stack
from tests.waiting import wait_until

pytestmark = pytest.mark.root

HOST, OTHER = "sandlot.example.com", "anything.sandlot.example.com"
TLS = "sandlot-tls"
PATHS = {
    "Ingress": "/apis/networking.k8s.io/v1/namespaces/{}/ingresses",
    "HTTPRoute": "/apis/gateway.networking.k8s.io/v1/namespaces/{}/httproutes",
}


@dataclass
class World:
    """A gateway, Traefik, and a Service of the chart that leads to the gateway."""

    server: ApiServer
    namespace: str
    stack: Stack
    proxy: Traefik
    authority: trustme.CA
    directory: Path

    def certify(self) -> bytes:
        """A new certificate in the Secret of the guide; itself."""
        made = self.authority.issue_cert(HOST, f"*.{HOST}")
        pem = b"".join(blob.bytes() for blob in made.cert_chain_pems)
        data = {"tls.crt": pem, "tls.key": made.private_key_pem.bytes()}
        secret = {
            "metadata": {"name": TLS},
            "type": "kubernetes.io/tls",
            "data": {name: base64.b64encode(value).decode() for name, value in data.items()},
        }
        path = f"/api/v1/namespaces/{self.namespace}/secrets"
        try:
            self.server.call("PUT", f"{path}/{TLS}", secret)
        except urllib.error.HTTPError as error:
            assert error.code == 404
            self.server.call("POST", path, secret)
        return ssl.PEM_cert_to_DER_cert(made.cert_chain_pems[0].bytes().decode())

    def served(self) -> tuple[bytes | None, int]:
        """The certificate, and the status of the route that needs no credential; 0 where nobody listens."""
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        try:
            with (
                socket.create_connection(("127.0.0.1", self.proxy.port), timeout=10) as plain,
                context.wrap_socket(plain, server_hostname=HOST) as peer,
            ):
                peer.sendall(f"GET /healthz HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode())
                words = peer.recv(4096).split()  # none where the proxy closes without an answer
                return peer.getpeercert(binary_form=True), int(words[1]) if len(words) > 1 else 0
        except OSError:
            return None, 0

    def client(self, what: str) -> None:
        """Runs `tests.chart.from_outside` where the names lead to the proxy."""
        hosts = self.directory / "hosts"
        hosts.write_text(f"127.0.0.1 {HOST} {OTHER}\n")
        trust = self.directory / "authority.pem"
        self.authority.cert_pem.write_to_path(str(trust))
        bind = 'mount --bind "$0" /etc/hosts && exec "$@"'
        within = ["unshare", "--mount", "sh", "-c", bind, str(hosts)]
        url = f"https://{HOST}:{self.proxy.port}"
        done = subprocess.run(
            [*within, sys.executable, "-m", "tests.chart.from_outside", what, url, OTHER],
            env=os.environ | {"SANDLOT_API_KEY": self.stack.api_key, "SSL_CERT_FILE": str(trust)},
            capture_output=True,
            text=True,
            timeout=250,
            cwd=ROOT,
            check=False,
        )
        assert done.returncode == 0, f"{done.stderr[-6000:]}\n{self.proxy.log.read_text()[-3000:]}"
        assert done.stdout == f"done: {what}\n"


@pytest.fixture(scope="module")
def world(apiserver: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    gateway_api.define(apiserver)
    directory, namespace = tmp_path_factory.mktemp("traefik"), apiserver.namespace("traefik")
    with (
        cable("t", network=19) as net,
        traefik(apiserver, directory, namespace=namespace, settings=documented_settings()) as proxy,
        private_stack("--host", net.outside, "--public-url", f"https://{HOST}:{proxy.port}") as stack,
    ):
        made = World(apiserver, namespace, stack, proxy, trustme.CA(), directory)
        service = one(render(namespace=namespace), "Service", GATEWAY)
        del service["source"]
        apiserver.call("POST", f"/api/v1/namespaces/{namespace}/services", service)
        apiserver.call(
            "POST",
            f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices",
            {
                "metadata": {"name": GATEWAY, "labels": {"kubernetes.io/service-name": GATEWAY}},
                "addressType": "IPv4",
                "endpoints": [{"addresses": [net.outside], "conditions": {"ready": True}}],
                "ports": [{"name": "http", "port": stack.port, "protocol": "TCP"}],
            },
        )
        yield made


def documented_settings() -> tuple[str, ...]:
    """What the guide adds to Traefik's arguments."""
    (fence,) = fences("docs/ingress.md", "text")
    return tuple(fence.text.split())


def guide(which: str) -> dict[str, Any]:
    """The values that the guide shows for this class of Ingress, or for the HTTPRoute."""
    for fence in fences("docs/ingress.md", "yaml"):
        gateway = fence.document.get("gateway", {})
        if which in (
            gateway.get("ingress", {}).get("className"),
            *(["HTTPRoute"] if "httpRoute" in gateway else []),
        ):
            return fence.document
    raise AssertionError(f"docs/ingress.md has no values for {which}")


def surroundings(world: World, which: str) -> list[str]:
    """Makes what a cluster's owner has made before; the paths of these resources."""
    networking, gateways = "networking.k8s.io/v1", "gateway.networking.k8s.io/v1"
    if which in CLASSES:
        controller = {"controller": CLASSES[which]}
        return [made(world, networking, "IngressClass", "ingressclasses", name=which, spec=controller)]
    listener = {
        "name": "https",
        "protocol": "HTTPS",
        "port": world.proxy.port,
        "tls": {"certificateRefs": [{"name": TLS}]},
    }
    spec = {"gatewayClassName": "traefik", "listeners": [listener]}
    inside = f"namespaces/{world.namespace}/gateways"
    controller = {"controllerName": CONTROLLER}
    return [
        made(world, gateways, "GatewayClass", "gatewayclasses", name="traefik", spec=controller),
        made(world, gateways, "Gateway", inside, name="public", spec=spec),
    ]


def made(world: World, version: str, kind: str, where: str, *, name: str, spec: dict[str, Any]) -> str:
    resource = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}
    world.server.call("POST", f"/apis/{version}/{where}", resource)
    return f"/apis/{version}/{where}/{name}"


@contextmanager
def led(world: World, which: str, annotations: dict[str, str] | None = None) -> Iterator[None]:
    """For the block Traefik leads to the gateway, by the guide's values; `annotations` are changed ones."""
    world.certify()
    values, kind = guide(which), "HTTPRoute" if which == "HTTPRoute" else "Ingress"
    if kind == "HTTPRoute":
        values["gateway"]["httpRoute"]["parentRefs"][0]["namespace"] = world.namespace
    (resource,) = of_kind(render(values, namespace=world.namespace), kind)
    del resource["source"]
    resource["metadata"].setdefault("annotations", {}).update(annotations or {})
    there = surroundings(world, which)
    path = PATHS[kind].format(world.namespace)
    world.server.call("POST", path, resource)
    try:
        wait_until(lambda: world.served()[1] == 200, what="the controller leads to the gateway")
        yield
    finally:
        for each in (f"{path}/{GATEWAY}", *there):
            world.server.call("DELETE", each)
        wait_until(lambda: world.served()[1] != 200, what="the controller has forgotten the gateway")


@pytest.mark.parametrize("which", ["nginx", "traefik", "HTTPRoute"])
def test_a_client_does_all_of_it_through_a_controller(world: World, which: str) -> None:
    with led(world, which):
        world.client("all")
        before = world.served()[0]
        new = world.certify()
        assert new != before
        wait_until(lambda: world.served() == (new, 200), what=f"{which} has the renewed certificate")


def test_a_controller_s_time_limit_ends_a_silent_command_for_others_than_the_sdk(world: World) -> None:
    with led(world, "nginx", {"nginx.ingress.kubernetes.io/proxy-read-timeout": "1"}):
        world.client("silence")
