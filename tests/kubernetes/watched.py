"""A real Prometheus in a pod beside a release: it finds and scrapes the release's pods and evaluates the chart's alerts."""

from __future__ import annotations

import base64
import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.chart import prometheus
from tests.chart.alerts import rendered
from tests.chart.render import Resource, render
from tests.cluster import cluster
from tests.kubernetes import monitors
from tests.kubernetes.alert_faults import workers
from tests.kubernetes.boxes import namespace, plain_pod
from tests.kubernetes.discovery import discovery
from tests.kubernetes.stack import IMAGE, Stack
from tests.waiting import wait_until, wait_until_empty

QUIET = 5  # evaluations, one a second
_DIRECTORY = "/var/lib/sandlot-test"  # on the node
_SUBJECT = ("pod", "pool", "file", "resource", "reason")  # labels that tell of what an alert is
SWITCHED_ON = {"serviceMonitor": {"enabled": True}, "alerts": {"enabled": True}}


class Watcher(prometheus.Prometheus):
    """A running server. `lasting`: the alerts with a range, which are active for as long after their fault's end."""

    def __init__(self, url: str, lasting: set[str]) -> None:
        super().__init__(url)
        self._lasting = lasting
        self._since = time.time()
        self._earlier: set[str] = set()  # what an earlier fault has left active, or may bring back
        self._expected: set[str] = set()

    def begin(self) -> None:
        """From now on only what is waited for may fire."""
        active = {named(labels) for labels, _ in self.query(f"last_over_time(ALERTS[{QUIET}s])")}
        before = self._earlier | self.fired() | active
        self._earlier = {each for each in before if each.split()[0] in self._lasting}
        self._expected, self._since = set(), time.time()

    def fired(self) -> set[str]:
        """Each alert that has fired since, with what it is of."""
        range_ = f"[{max(1, int(time.time() - self._since))}s]"
        found = self.query(f'last_over_time(ALERTS{{alertstate="firing"}}{range_})')
        return {named(labels) for labels, _ in found}

    def targets(self) -> dict[str, float]:
        """The health of each pod that is scraped."""
        return {labels["pod"]: value for labels, value in self.query("up")}

    def scraped(self) -> None:
        """Wait until every pod that answers has been read as it is now."""
        now = time.time()
        wait_until(lambda: not self.query(f"up == 1 and timestamp(up) <= {now}"), pause=0.3)

    def shows(self, expression: str) -> bool:
        return any(not math.isnan(value) for _, value in self.query(expression))

    def fires(self, *alerts: str, may: tuple[str, ...] = ()) -> None:
        """Wait until these fire, besides those that it waited for before; of others only `may` may have fired, too.

        One that an earlier fault has left active, or may bring back, would tell nothing of this one.
        """
        assert not (old := self._earlier & {*alerts}), f"{old} fired before this fault"
        self._expected |= {*alerts}

        def all_fire() -> bool:
            found = self.fired()
            wrong = found - self._earlier - self._expected - {*may}
            assert not wrong, f"{wrong} fired beside {found - wrong}"
            return found >= {*alerts}

        wait_until(all_fire, seconds=90, pause=0.5, what=f"{alerts} fire, and {self.fired()} did")

    def is_quiet(self) -> None:
        """Wait until no alert has been pending for some evaluations; before it sees any pod, a server is not quiet."""
        wait_until(self._is_silent, what="no alert is pending", pause=0.5)
        self.begin()

    def stays_quiet(self) -> None:
        """Wait until no alert is pending any more; none has fired since the server began to watch."""

        def ends() -> bool:
            assert not (found := self.fired()), f"{found} fired"
            return self._is_silent()

        wait_until(ends, what="no alert is pending", pause=0.5)
        assert self.fired() == set()

    def _is_silent(self) -> bool:
        return not self.query(f"count_over_time(ALERTS[{QUIET}s])")

    def heals(self) -> None:
        """Wait until no alert is active, except for what lasts."""
        wait_until_empty(lambda: self.active() - self._lasting, pause=0.5, seconds=120)


def named(labels: dict[str, str]) -> str:
    """An alert with what it is of, such as `SandlotPoolEmpty default`."""
    return " ".join([labels["alertname"], *(labels[name] for name in _SUBJECT if name in labels)])


@dataclass
class Watched:
    """A release whose pods a Prometheus in a namespace of its own may find."""

    stack: Stack
    place: str
    node: str
    discovery: str  # URL
    resources: list[Resource] = field(init=False)

    def __post_init__(self) -> None:
        found = json.loads(
            self.stack.helm("get", "values", self.stack.release, "-n", self.stack.namespace, "-o", "json")
        )
        release = {"release": self.stack.release, "namespace": self.stack.namespace}
        self.resources = render(found | SWITCHED_ON, **release)

    def pods(self) -> set[str]:
        """Of the release, those that are to be scraped."""
        chosen = ("-l", "app.kubernetes.io/component in (gateway, controller, node-agent)")
        spaces = (self.stack.namespace, self.stack.sandboxes)
        items = [item for space in spaces for item in self.stack.get("pods", "-n", space, *chosen)["items"]]
        return {item["metadata"]["name"] for item in items if "deletionTimestamp" not in item["metadata"]}

    @contextmanager
    def prometheus(self, name: str) -> Iterator[Watcher]:
        """A server that scrapes every pod and sees no fault."""
        self._apply("ConfigMap", "rules", {"rules.json": json.dumps(monitors.rules(self.resources))})
        config = monitors.configuration(self.resources, discovery=self.discovery, secret=self._secret)
        self._apply("Secret", "config", {"prometheus.json": json.dumps(config)})
        with plain_pod(self.stack, self.place, name, self._pod()) as address:
            alerts = rendered(self.resources).values()
            lasting = {alert["alert"] for alert in alerts if "[" in alert["expr"]}
            server = Watcher(f"http://{address}:9090", lasting)
            wait_until(lambda: self._sees_all(server), what="all pods are scraped", pause=0.3)
            server.is_quiet()
            yield server

    def _sees_all(self, server: Watcher) -> bool:
        found = server.targets()
        return found.keys() == self.pods() and all(found.values())

    def _secret(self, name: str, key: str) -> str:
        data = self.stack.get("secret", name, "-n", self.stack.namespace)["data"]
        return base64.b64decode(data[key]).decode().strip()

    def _apply(self, kind: str, name: str, data: dict[str, str]) -> None:
        metadata = {"name": name, "namespace": self.place}
        field = "stringData" if kind == "Secret" else "data"
        body = {"apiVersion": "v1", "kind": kind, "metadata": metadata, field: data}
        self.stack.kubectl("apply", "-f", "-", stdin=json.dumps(body))

    def _pod(self) -> dict[str, Any]:
        directory = "/etc/prometheus"
        container = {
            "name": "prometheus",
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "command": [
                f"{_DIRECTORY}/prometheus",
                f"--config.file={directory}/prometheus.json",
                "--storage.tsdb.path=/data",
                "--web.listen-address=:9090",
            ],
            "readinessProbe": {"httpGet": {"path": "/-/ready", "port": 9090}, "periodSeconds": 1},
            "volumeMounts": [
                {"name": "program", "mountPath": _DIRECTORY, "readOnly": True},
                {"name": "config", "mountPath": directory},
                {"name": "data", "mountPath": "/data"},
            ],
        }
        sources = [{"configMap": {"name": "rules"}}, {"secret": {"name": "config"}}]
        return {
            "nodeName": self.node,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            "volumes": [
                {"name": "program", "hostPath": {"path": _DIRECTORY, "type": "Directory"}},
                {"name": "config", "projected": {"sources": sources}},
                {"name": "data", "emptyDir": {}},
            ],
        }


@contextmanager
def watched(stack: Stack) -> Iterator[Watched]:
    """The release as a Prometheus can see it, with the program on one of the nodes."""
    node = workers(stack)[0]
    engine = cluster.recorded()
    program = f"{_DIRECTORY}/prometheus"
    script = f"mkdir -p {_DIRECTORY} && cat > {program} && chmod 755 {program}"
    try:
        engine.on_node(node, "sh", "-c", script, stdin=prometheus.program("prometheus").read_bytes())
        address = engine.on_node(node, "ip", "-4", "route", "show", "default").split()[2]
        place = namespace(stack, f"{stack.release}-monitoring")
        with discovery(stack, address) as url, place as where:
            yield Watched(stack, where, node, url)
    finally:
        engine.on_node(node, "rm", "-rf", _DIRECTORY)
