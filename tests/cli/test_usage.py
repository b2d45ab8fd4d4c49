"""usage: a table for people, JSON and CSV for programs, and what is wrong with an argument."""

from __future__ import annotations

import csv
import io
import json
import os

import pytest
from sandlot import Client, Sandbox

from tests.cli.conftest import Run
from tests.sdk.conftest import Server

needs_a_gateway = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: the small server counts nothing")


@needs_a_gateway
def test_usage_as_table_json_and_csv(cli: Run, server: Server) -> None:
    with Client(url=server.url, api_key=server.api_key) as client:
        Sandbox.create(client=client, run="cli-usage", cpu=0.5).delete()
    shown = cli("usage", "--since", "2h", "--by", "run", "--by", "hour").stdout.splitlines()
    assert shown[0].split()[:3] == ["TIME", "RUN", "SANDBOXES"]
    # Two lines, if an hour begins meanwhile.
    assert sum(int(line.split()[2]) for line in shown if "cli-usage" in line) == 1
    assert cli("usage").stdout.split()[0] == "TENANT"
    report = json.loads(cli("usage", "--json").stdout)
    (row,) = [row for row in report["rows"] if row["run"] == "cli-usage"]
    assert row["core_seconds"] == pytest.approx(row["sandbox_seconds"] / 2, abs=0.002)
    assert report["since"] < report["until"]
    printed = list(csv.DictReader(io.StringIO(cli("usage", "--csv").stdout)))
    assert [float(one["core_seconds"]) for one in printed if one["run"] == "cli-usage"] == [
        row["core_seconds"]
    ]
    assert cli("usage", "--until", "2026-01-01", "--since", "2025-12-31").stderr == "no usage\n"


def test_a_wrong_argument_is_named(lone_cli: Run) -> None:
    wrong = lone_cli("usage", "--since", "soon")
    assert (wrong.returncode, "--since" in wrong.stderr) == (2, True)
    wrong = lone_cli("usage", "--since", "999999d")
    assert (wrong.returncode, "--since" in wrong.stderr) == (2, True)
    assert lone_cli("usage", "--csv", "--json").returncode == 2
    assert lone_cli("usage", "--by", "image").returncode == 2


@needs_a_gateway
def test_quotas_as_table_and_json(cli: Run, server: Server) -> None:
    with Client(url=server.url, api_key=server.api_key) as client:
        box = Sandbox.create(client=client, cpu=0.5)
        found = {
            one["name"]: (one["limit"], one["used"]) for one in json.loads(cli("quotas", "--json").stdout)
        }
        box.delete()
    limit, used = found["cores"]
    assert (limit, used >= 0.5) == (None, True)
    shown = [line.split() for line in cli("quotas").stdout.splitlines()]
    assert shown[0] == ["QUOTA", "LIMIT", "USED"]
    assert ["creates_per_second", "-", "-"] in shown
