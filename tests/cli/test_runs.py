"""runs: a table of the leases, one of them with what has become of its sandboxes, and its end."""

from __future__ import annotations

import json
import os

import pytest
from sandlot import Client, Sandbox

from tests.cli.conftest import Run
from tests.sdk.conftest import Server

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: the small server has no runs")


def test_runs_are_listed_shown_and_ended(cli: Run, server: Server) -> None:
    with Client(url=server.url, api_key=server.api_key) as client:
        client.call("PUT", "/runs/cli-run", body={"holder": "n1:7", "grace_seconds": 600})
        Sandbox.create(client=client, run_id="cli-run")
    shown = cli("runs").stdout.splitlines()
    assert shown[0].split()[:4] == ["RUN", "STATE", "RUNNING", "PENDING"]
    (line,) = [line.split() for line in shown if line.startswith("cli-run")]
    assert line[:5] == ["cli-run", "ACTIVE", "1", "0", "0"]
    assert "1 RUNNING" in cli("runs", "show", "cli-run").stdout
    assert json.loads(cli("runs", "end", "cli-run", "--json").stdout)["verdicts"] == {"deleted": 1}
    (ended,) = [one for one in json.loads(cli("runs", "--json").stdout) if one["id"] == "cli-run"]
    assert (ended["state"], ended["verdicts"]) == ("ENDED", {"deleted": 1})
    missing = cli("runs", "show", "nothing")
    assert (missing.returncode, "no run nothing" in missing.stderr) == (3, True)
