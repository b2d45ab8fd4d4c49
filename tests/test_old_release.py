"""The commit from which `make test-upgrade` upgrades: one that was named and does not exist is an error."""

from __future__ import annotations

import os
import subprocess

from tests.kubernetes.old_release import ROOT


def test_a_commit_that_does_not_exist_fails_the_run_that_names_it() -> None:
    done = subprocess.run(
        ["bash", "tools/test_upgrade.sh"],
        cwd=ROOT,
        env={**os.environ, "SANDLOT_UPGRADE_FROM": "no-such-commit"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "no-such-commit" in done.stderr) == (1, True), done.stderr
