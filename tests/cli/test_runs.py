"""runs: a table of the leases, one of them with what has become of its sandboxes, and its end."""

from __future__ import annotations

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from sandlot import Client, Sandbox

from tests.cli.conftest import Run, command_line
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


class WithoutReports(BaseHTTPRequestHandler):
    """A server that has a run, and cannot read its usage."""

    def do_GET(self) -> None:
        status, body = 200, b'{"id": "r", "state": "ENDED", "verdicts": {"node_lost": 1, "deleted": 2}}'
        if self.path.endswith("/report"):
            status, body = 503, b'{"detail": "the usage cannot be read"}'
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


def test_a_run_is_shown_without_its_report(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), WithoutReports) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            cli = command_line(f"http://127.0.0.1:{server.server_port}", "a-key", tmp_path / "home")
            shown = cli("runs", "show", "r")
        finally:
            server.shutdown()
            serving.join()
    assert shown.returncode == 0, shown.stderr
    assert "1 lost by the infrastructure (1 node_lost)" in shown.stdout
    assert "not available: " in shown.stdout
    assert "the usage cannot be read" in shown.stdout
