"""What a run costs, from the operator's prices to the command line, CSV and the HTML report."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

from sandlot import Accounting, Client, Run, Runs, Sandbox

from tests.cli.conftest import environment
from tests.local.conftest import NEEDS_ROOT
from tests.stack import private_stack
from tests.waiting import SECONDS

pytestmark = NEEDS_ROOT


def test_a_run_s_cost_is_shown_wherever_its_usage_is(tmp_path: Path) -> None:
    prices = tmp_path / "prices.json"
    prices.write_text(
        json.dumps({"currency": "CHF", "core_hour": "3600", "memory_gib_hour": "360.000000001"})
    )
    page = tmp_path / "run.html"
    with (
        private_stack("--prices-file", str(prices)) as stack,
        Client(url=stack.url, api_key=stack.api_key) as client,
    ):
        with Run("costly", priority=7, weight=2, report=page, client=client):
            Sandbox.create("host", cpu=0.5, client=client).exec("true")

        def cli(*arguments: str) -> str:
            return subprocess.run(
                [sys.executable, "-m", "sandlot", *arguments],
                capture_output=True,
                text=True,
                check=True,
                timeout=SECONDS,
                env=environment(stack.url, stack.api_key, tmp_path),
            ).stdout

        usage = Runs(client=client).report("costly").usage
        assert usage.cost is not None
        assert usage.cost.currency == "CHF"
        assert abs(usage.cost.cores - Decimal(usage.core_seconds)) < Decimal("0.002")
        assert usage.cost.total == usage.cost.cores + usage.cost.memory > usage.cost.cores
        [row] = [row for row in Accounting(client=client).usage().rows if row.run == "costly"]
        assert row.cost == usage.cost
        lines = dict(
            line.split(maxsplit=1) for line in cli("runs", "show", "costly").splitlines() if " " in line
        )
        assert (lines["priority"], lines["weight"]) == ("7", "2")
        assert lines["cost"].startswith(f"{usage.cost.total.normalize():f} CHF (cores ")
        assert json.loads(cli("runs", "report", "costly", "--json"))["usage"]["cost"]["currency"] == "CHF"
        [listed] = [line.split() for line in cli("runs").splitlines() if line.startswith("costly")]
        assert listed[5:7] == ["7", "2"]
        header, *_ = shown = cli("usage", "--by", "run").splitlines()
        assert header.split()[-1] == "COST"
        assert any(line.startswith("costly ") and line.endswith(" CHF") for line in shown)
        [printed] = [
            one for one in csv.DictReader(io.StringIO(cli("usage", "--csv"))) if one["run"] == "costly"
        ]
        assert (printed["currency"], Decimal(printed["cost"])) == ("CHF", usage.cost.total)
        assert Decimal(printed["core_cost"]) + Decimal(printed["memory_cost"]) == usage.cost.total
    assert "CHF" in page.read_text()
    assert "7, 2" in page.read_text(), "its priority and weight"
