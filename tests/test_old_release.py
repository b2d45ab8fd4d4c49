"""The commit from which `make test-upgrade` upgrades must exist: without it the target fails and says what to fetch."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.kubernetes.old_release import ROOT


def test_a_commit_that_does_not_exist_fails_the_run_that_names_it() -> None:
    done = upgrade(SANDLOT_UPGRADE_FROM="no-such-commit")
    assert (done.returncode, "no-such-commit" in done.stderr) == (1, True), done.stderr


def test_a_clone_without_history_fails_the_run(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True, capture_output=True)
    done = upgrade(SANDLOT_UPGRADE_FROM="", GIT_DIR=str(tmp_path / ".git"))
    assert done.returncode == 1, done.stderr
    assert "from which to upgrade: fetch its whole history (`git fetch --unshallow --tags`" in done.stderr


def upgrade(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "tools/test_upgrade.sh"],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
