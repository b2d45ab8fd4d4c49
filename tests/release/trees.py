"""Copies of the tree as repositories of their own, in which a test commits what it likes, and releases of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kube.apiserver import binary

ROOT = Path(__file__).resolve().parents[2]
DATE = "2026-05-04T03:02:01+00:00"
IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "a"), ("EMAIL", "a@example.com"), ("DATE", DATE))
}


class Tree:
    """A commit of what this checkout has now, without what git ignores. Skips the test outside of a checkout."""

    def __init__(self, directory: Path) -> None:
        if not (ROOT / ".git").exists():  # in a worktree it is a file
            pytest.skip("needs a git checkout, which says what belongs to the tree")
        self.directory = directory
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        ).stdout.decode()
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                (directory / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, directory / name)
        (directory / ".venv").symlink_to(ROOT / ".venv")
        self.git("init", "--quiet")
        # The link is no directory, as .gitignore has it.
        (directory / ".git" / "info").mkdir(exist_ok=True)
        (directory / ".git" / "info" / "exclude").write_text(".venv\n")
        self.commit()

    def git(self, *words: str) -> str:
        done = subprocess.run(
            ["git", *words],
            cwd=self.directory,
            env={**os.environ, **IDENTITY},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("-c", "commit.gpgsign=false", "commit", "--quiet", "--message", "a tree")

    def change(self, name: str, old: str, new: str) -> None:
        text = (self.directory / name).read_text()
        assert old in text
        (self.directory / name).write_text(text.replace(old, new, 1))

    def release(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return release(*words, directory=self.directory, **environment)


def release(*words: str, directory: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """`python -m release`, with the test cluster's Helm if there is one."""
    helm = binary("helm")
    return subprocess.run(
        [sys.executable, "-m", "release", *words],
        cwd=directory,
        env={**os.environ, "HELM": str(helm or "helm"), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
