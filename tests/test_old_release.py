"""The commit from which `make test-upgrade` upgrades: one that was named must exist, the default need not in a shallow clone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.kubernetes.old_release import NOTHING, ROOT


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


def test_a_repository_without_history_has_nothing_to_upgrade_from(tmp_path: Path) -> None:
    """The script takes this exit code for a run that is not to fail."""
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True, capture_output=True)
    kept = {name: value for name, value in os.environ.items() if name != "SANDLOT_UPGRADE_FROM"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.kubernetes.old_release"],
        cwd=ROOT,
        env={**kept, "GIT_DIR": str(tmp_path / ".git")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == NOTHING, done.stderr
    assert "from which to upgrade: fetch its history" in done.stderr
