"""`python -m loadtests.run` in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def command(*words: str, reports: Path) -> list[str]:
    return [sys.executable, "-m", "loadtests.run", *words, "--reports", str(reports)]


def run(
    *words: str, reports: Path, timeout: float = 120, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*words, reports=reports),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **(env or {})},
    )
