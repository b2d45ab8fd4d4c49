"""Prometheus and promtool of Debian's package, as files beside the test cluster's programs, and one server for a test."""

from __future__ import annotations

import json
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.programs import running, until
from tests.cluster.debian import download
from tests.cluster.paths import BIN
from tests.cluster.shell import run
from tests.kube.apiserver import binary
from tests.ports import free_port

PROGRAMS = ("prometheus", "promtool")
Labels = dict[str, str]


def fetch() -> None:
    """Unpack the programs, once; the package itself would bring a service and fonts."""
    if all(binary(name) for name in PROGRAMS):
        return
    BIN.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BIN, prefix=".prometheus-") as place:
        (package,) = download(("prometheus",), directory=Path(place))
        run(["dpkg", "-x", package, place])
        for name in PROGRAMS:
            (Path(place) / "usr/bin" / name).rename(BIN / name)


def program(name: str) -> Path:
    """One of them. Skips the test where it is missing."""
    if (path := binary(name)) is None:
        pytest.skip("needs Debian's Prometheus (`python -m tests.chart` fetches it)")
    return path


def promtool(*words: str | Path) -> str:
    """Run promtool and return what it prints; it must succeed."""
    done = subprocess.run(
        [program("promtool"), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@dataclass(frozen=True)
class Target:
    """What is scraped, with the labels that the Prometheus operator gives it."""

    component: str
    namespace: str
    port: int
    key: str | None = None

    @property
    def pod(self) -> str:
        return f"sandlot-{self.component}-1"

    def config(self) -> dict[str, Any]:
        labels = {"namespace": self.namespace, "pod": self.pod}
        static = [{"targets": [f"127.0.0.1:{self.port}"], "labels": labels}]
        credentials = {} if self.key is None else {"authorization": {"credentials": self.key}}
        return {"job_name": self.component, "static_configs": static, **credentials}


class Prometheus:
    """A running server."""

    def __init__(self, url: str) -> None:
        self._url = url

    def query(self, expression: str) -> list[tuple[Labels, float]]:
        """What the expression is now: each series' labels and its value."""
        query = urllib.parse.urlencode({"query": expression})
        found = self._ask(f"/api/v1/query?{query}")
        assert found["resultType"] == "vector", (expression, found)
        return [(each["metric"], float(each["value"][1])) for each in found["result"]]

    def active(self) -> set[str]:
        """The names of the alerts that are pending or fire, by the server's own evaluation of its rules."""
        return {each["labels"]["alertname"] for each in self._ask("/api/v1/alerts")["alerts"]}

    def rules(self) -> dict[str, str]:
        """The health of each alert's last evaluation: ok, err, or unknown before the first."""
        groups = self._ask("/api/v1/rules")["groups"]
        return {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=10) as answer:
                return answer.status == 200
        except OSError:
            return False

    def _ask(self, path: str) -> Any:
        try:
            with urllib.request.urlopen(self._url + path, timeout=30) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{urllib.parse.unquote_plus(path)}: {error.read().decode()}") from error
        assert not found.get("warnings"), (path, found)
        return found["data"]


@contextmanager
def scraping(
    targets: Sequence[Target], groups: Sequence[dict[str, Any]], directory: Path
) -> Iterator[Prometheus]:
    """A server that reads the targets twice a second and evaluates the rules as often."""
    port = free_port()
    rules, config = directory / "rules.yaml", directory / "prometheus.yaml"
    rules.write_text(yaml.safe_dump({"groups": list(groups)}))
    interval = {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"}
    jobs = [target.config() for target in targets]
    config.write_text(
        yaml.safe_dump({"global": interval, "rule_files": [str(rules)], "scrape_configs": jobs})
    )
    command = [
        str(program("prometheus")),
        f"--config.file={config}",
        f"--storage.tsdb.path={directory / 'tsdb'}",
    ]
    listening = f"--web.listen-address=127.0.0.1:{port}"
    with running([*command, listening], log=directory / "prometheus.log", variables={}) as process:
        server = Prometheus(f"http://127.0.0.1:{port}")
        until(process, server.answers, bool)
        yield server
