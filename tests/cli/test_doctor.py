"""doctor says what is wrong and what to do, and its exit code can be used in scripts."""

from __future__ import annotations

import json

from tests.cli.conftest import Run


def test_every_check_is_reported(cli: Run) -> None:
    done = cli("doctor", "--json")
    checks = {item["name"]: item for item in json.loads(done.stdout)}
    assert {"python", "kernel", "namespaces", "overlay", "cgroups", "server", "state"} <= set(checks)
    assert checks["server"]["state"] == "ok"
    assert all(item["advice"] for item in checks.values() if item["state"] == "fail")
    failed = any(item["state"] == "fail" for item in checks.values())
    assert done.returncode == (1 if failed else 0)


def test_a_server_that_does_not_answer_is_found(cli: Run) -> None:
    done = cli("doctor", SANDLOT_URL="http://127.0.0.1:1")
    assert done.returncode == 1
    assert "fail  server: cannot connect to 127.0.0.1:1" in done.stdout
    assert "→ check SANDLOT_URL" in done.stdout
