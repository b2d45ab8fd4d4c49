"""Runs the short version of every profile, and reads what each left."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from loadtests.load import events
from loadtests.load.events import Event
from loadtests.processes import with_mark
from tests.load.command import run


@dataclass(frozen=True)
class Result:
    code: int
    said: str
    reports: Path

    def summary(self, name: str) -> dict[str, Any]:
        return json.loads((self.reports / name / "summary.json").read_text())

    def events(self, name: str) -> list[Event]:
        return list(events.read(self.reports / name / "events.jsonl"))

    def samples(self, name: str) -> list[dict[str, Any]]:
        lines = (self.reports / name / "samples.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


def run_all(reports: Path) -> tuple[int, str]:
    # A directory of its own for what the command makes, so that nothing else on the machine is taken for its leavings.
    with tempfile.TemporaryDirectory(prefix="sandlot-") as home:
        done = run("all", "--short", "--every", "0.5", reports=reports, timeout=1100, env={"TMPDIR": home})
        assert with_mark(home) == []
        assert home not in Path("/proc/self/mountinfo").read_text()
        assert os.listdir(home) == []
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The short version of every profile, one after the other on one stack: once for all workers of this run."""
    if os.geteuid() != 0:
        pytest.skip("needs root: real namespaces and cgroups")
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    reports, done = shared / "load", shared / "load.json"
    with (shared / "load.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            done.write_text(json.dumps(run_all(reports)))
    code, said = json.loads(done.read_text())
    return Result(code, said, reports)
