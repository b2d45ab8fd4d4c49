"""The command line: bad input is named, and without a cluster the answer is a sentence and not a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def call(*words: str, cache: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.cluster", *words],
        cwd=ROOT,
        env={**os.environ, "SANDLOT_CLUSTER_CACHE": str(cache)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("words", [("status",), ("run", "true"), ("kill", "apiserver"), ("logs",)])
def test_without_a_cluster_it_says_how_to_get_one(words: tuple[str, ...], tmp_path: Path) -> None:
    done = call(*words, cache=tmp_path)
    assert done.returncode == 1
    assert "python -m tests.cluster up" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_component_is_refused(tmp_path: Path) -> None:
    done = call("kill", "nonsense", cache=tmp_path)
    assert done.returncode == 2
    assert "nonsense" in done.stderr
