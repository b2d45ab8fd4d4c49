"""Traefik, as a process that reads Ingresses and routes from the API server of the tests."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.chart.programs import running
from tests.kube.apiserver import ApiServer, binary
from tests.ports import free_ports

CONTROLLER = "traefik.io/gateway-controller"  # of a GatewayClass
# Of an IngressClass. Traefik follows the annotations of ingress-nginx for its class.
CLASSES = {"nginx": "k8s.io/ingress-nginx", "traefik": "traefik.io/ingress-controller"}


@dataclass(frozen=True)
class Traefik:
    """It serves HTTPS on `port` of loopback."""

    port: int
    log: Path
    process: subprocess.Popen[bytes]


@contextmanager
def traefik(
    server: ApiServer, directory: Path, *, namespace: str, settings: tuple[str, ...] = ()
) -> Iterator[Traefik]:
    """For one namespace's resources; `settings` are further arguments."""
    program = binary("traefik")
    if program is None:
        pytest.skip("needs Traefik (`python -m tests.chart` builds it)")
    plain, port = free_ports(2)
    providers = [
        f"--providers.{name}.{setting}"
        for name in ("kubernetesingress", "kubernetesingressnginx", "kubernetesgateway")
        for setting in (
            f"{'watchnamespace' if name.endswith('nginx') else 'namespaces'}={namespace}",
            "throttleduration=100ms",
        )
    ]
    command = [
        str(program),
        "--global.checknewversion=false",
        "--global.sendanonymoususage=false",
        f"--entrypoints.web.address=127.0.0.1:{plain}",
        f"--entrypoints.websecure.address=127.0.0.1:{port}",
        "--entrypoints.websecure.http.tls=true",
        *providers,
        "--providers.providersthrottleduration=100ms",
        "--providers.kubernetesingressnginx.httpentrypoint=web",
        "--providers.kubernetesingressnginx.httpsentrypoint=websecure",
        *settings,
    ]
    kubeconfig = server.kubeconfig(directory / "traefik.kubeconfig")
    log = directory / "traefik.log"
    with running(command, log=log, variables={"KUBECONFIG": str(kubeconfig)}) as process:
        yield Traefik(port, log, process)
