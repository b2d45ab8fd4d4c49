"""Runs a real CoreDNS on port 53, with kubeadm's Corefile or the chart's, over the API server of a load test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from loadtests.cluster.control_plane import running
from tests.kube.apiserver import ApiServer

HOST = "127.0.0.1"
DOMAIN = "cluster.local"
_CHART = Path(__file__).resolve().parents[2] / "charts" / "sandlot" / "files" / "Corefile"
KUBEADM = Path(__file__).with_name("Corefile.kubeadm").read_text()
OURS = _CHART.read_text().replace("{{ .Values.clusterDomain }}", DOMAIN)


@contextmanager
def coredns(directory: Path, server: ApiServer, *, corefile: str) -> Iterator[psutil.Process]:
    """Run it; its Corefile is as given but for the API server's address. Needs a network namespace of its own."""
    kubeconfig = server.kubeconfig(directory / "coredns.kubeconfig")
    before, plugin, after = corefile.partition("    kubernetes ")
    options, brace, rest = after.partition("{\n")
    assert plugin, brace
    path = directory / "Corefile"
    path.write_text(f"{before}{plugin}{options}{brace}       kubeconfig {kubeconfig} test\n{rest}")
    with running("coredns", ["-conf", str(path)], directory=directory) as process:
        yield psutil.Process(process.pid)
