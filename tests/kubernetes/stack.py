"""An installation of the chart on the test cluster, and what tests do to it with kubectl and helm."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.paths import BIN
from tests.cluster.shell import ClusterError, run

CHART = Path(__file__).resolve().parents[2] / "charts" / "sandlot"
IMAGE = "sandlot.test/python:dev"
POOL = 3
SERVED = {"http", "https"}  # of the gateway's ports those that somebody always listens at
PORT_SECONDS = 180.0


def program(name: str) -> str:
    """kubectl or helm: the test cluster's own, else the machine's."""
    own = BIN / name
    return str(own) if own.exists() else shutil.which(name) or name


def release_name() -> str:
    """$SANDLOT_TEST_RELEASE, with the name of the parallel worker if this is one."""
    name, worker = os.environ.get("SANDLOT_TEST_RELEASE", "sandlot"), os.environ.get("PYTEST_XDIST_WORKER")
    return name if worker is None else f"{name}-{worker}"


@dataclass(frozen=True, slots=True)
class Stack:
    """`kubeconfig` and `context` say which cluster."""

    kubeconfig: str
    context: str | None
    runtime: str  # the runtime class of sandboxes, "" for the nodes' default
    release: str = "sandlot"  # of Helm; two releases live side by side

    @classmethod
    def of_environment(cls, *, runtime: str, release: str | None = None) -> Stack:
        """On the cluster of $KUBECONFIG and $SANDLOT_TEST_CONTEXT; `runtime` "gvisor" or "runc"."""
        return cls(
            kubeconfig=os.environ.get("KUBECONFIG") or os.path.expanduser("~/.kube/config"),
            context=os.environ.get("SANDLOT_TEST_CONTEXT"),
            runtime="gvisor" if runtime == "gvisor" else "",
            release=release or release_name(),
        )

    @property
    def namespace(self) -> str:
        """Of the gateway and the controller."""
        return f"{self.release}-test"

    @property
    def fullname(self) -> str:
        """What the chart's names begin with."""
        return self.release if "sandlot" in self.release else f"{self.release}-sandlot"

    @property
    def sandboxes(self) -> str:
        """The namespace of the sandboxes."""
        return f"{self.release}-sandboxes"

    def kubectl(self, *words: str, stdin: str | None = None, timeout: float = 300) -> str:
        context = ["--context", self.context] if self.context else []
        command = [program("kubectl"), "--kubeconfig", self.kubeconfig, *context, *words]
        return run(command, stdin=stdin, timeout=timeout)

    def get(self, *words: str) -> dict[str, Any]:
        """`kubectl get … -o json`."""
        document: dict[str, Any] = json.loads(self.kubectl("get", *words, "-o", "json"))
        return document

    def helm(self, *words: str, timeout: float = 540) -> str:
        context = ["--kube-context", self.context] if self.context else []
        return run([program("helm"), "--kubeconfig", self.kubeconfig, *context, *words], timeout=timeout)

    def install(self, *more: str, chart: Path = CHART) -> None:
        """Install or upgrade, and wait until gateway and controller are there and the gateway's ports are open."""
        template = {"image": IMAGE, "cpu": 1, "memory": 512 << 20, "disk": 1 << 30}
        values = {
            "image": {"registry": "sandlot.test", "tag": "dev", "pullPolicy": "Never"},
            "sandboxes": {"pods": {"imagePullPolicy": "Never"}},
            "gateway": {"service": {"type": "NodePort"}, "resources": {"requests": {"cpu": "50m"}}},
            "gvisor": {"enabled": bool(self.runtime), "createRuntimeClass": False},
            "pools": {"default": {"size": POOL, "template": template}},
        }
        command = ["upgrade", "--install", self.release, str(chart), "--namespace", self.namespace]
        command.append("--create-namespace")
        assignments = ",".join(f"{name}={json.dumps(value)}" for name, value in values.items())
        self.helm(*command, "--set-json", assignments, "--wait", "--timeout", "8m", *more)
        ports = self._node_ports()
        for name in SERVED & ports.keys():
            self._wait_for_port(ports[name])

    def _wait_for_port(self, port: int) -> None:
        """kube-proxy learns of a Service a moment after its pods are ready; until then the port refuses."""
        address, deadline = self.node_address, time.monotonic() + PORT_SECONDS
        while True:
            try:
                socket.create_connection((address, port), timeout=10).close()
                return
            except OSError as error:
                if time.monotonic() > deadline:
                    raise ClusterError(f"the gateway's port {address}:{port} is not open: {error}") from error
            time.sleep(0.1)

    def uninstall(self) -> None:
        """Helm's, and without the pods for which the namespaces would wait.

        A deleted namespace in which pods are left is looked at again only after half of the longest time that one of
        them may take to end: 16 s for node agents, 29 s for gateways. On a cluster of somebody's own, the sandboxes'
        namespace may be another installation's.
        """
        if self.context is None:
            with suppress(ClusterError):  # a node that is down ends no agent
                agents = ("daemonsets", "--all", "--cascade=foreground", "--timeout=60s")
                self.kubectl("delete", *agents, "-n", self.sandboxes)
        only_if_there = ("--wait", "--timeout", "8m", "--ignore-not-found")
        self.helm("uninstall", self.release, "--namespace", self.namespace, *only_if_there)
        self.kubectl("delete", "pods", "--all", "--grace-period=1", "-n", self.namespace)
        self.kubectl("delete", "namespace", self.namespace, "--ignore-not-found", "--wait")

    @property
    def api_key(self) -> str:
        secrets = self.get("secrets", "-n", self.namespace)["items"]
        keys = [item["data"]["api-key"] for item in secrets if "api-key" in (item.get("data") or {})]
        return base64.b64decode(keys[0]).decode().strip().partition(":")[0]

    @property
    def url(self) -> str:
        """The gateway's NodePort on the first node that is not the control plane."""
        return f"http://{self.node_address}:{self._node_ports()['http']}"

    @property
    def tls_url(self) -> str:
        """Of a release with `gateway.tls.existingSecret`, on the same node."""
        return f"https://{self.node_address}:{self._node_ports()['https']}"

    def _node_ports(self) -> dict[str, int]:
        """By their names in the gateway's Service."""
        services = self.get("services", "-n", self.namespace)["items"]
        ports = [port for item in services for port in item["spec"]["ports"] if "nodePort" in port]
        return {port["name"]: port["nodePort"] for port in ports}

    @property
    def node_address(self) -> str:
        """Of the first node that is not the control plane."""
        nodes = self.get("nodes", "-l", "!node-role.kubernetes.io/control-plane")["items"]
        addresses = nodes[0]["status"]["addresses"]
        return next(item["address"] for item in addresses if item["type"] == "InternalIP")

    def report(self) -> str:
        """What a failed test should print: events, resources, logs."""
        parts = []
        for words in (
            ("get", "pods,sandboxes,sandboxpools", "-A", "-o", "wide"),
            ("get", "events", "-A", "--sort-by=.lastTimestamp"),
            ("logs", "-n", self.namespace, "-l", "app.kubernetes.io/name=sandlot", "--tail=80", "--prefix"),
            (
                "logs",
                "-n",
                self.sandboxes,
                "-l",
                "app.kubernetes.io/component=sandbox",
                "-c",
                "sidecar",
                "--tail=30",
            ),
        ):
            try:
                parts.append(f"$ kubectl {' '.join(words)}\n{self.kubectl(*words, timeout=30)}")
            except ClusterError as error:
                parts.append(f"$ kubectl {' '.join(words)}: {error}")
        return "\n".join(parts)
