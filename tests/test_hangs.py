"""The plugin that ends a hanging test of a mutant: what it ends, and what it lets go on."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def run(directory: Path, test: str) -> subprocess.CompletedProcess[str]:
    (directory / "test_one.py").write_text(test)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.plugins.hangs",
        "--rootdir=.",
        "test_one.py",
    ]
    environment = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        command, cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


@pytest.mark.parametrize(
    "waiting",
    [
        "import threading; threading.Event().wait()",
        "import asyncio; asyncio.run(asyncio.Event().wait())",
        "import time\n    while True: time.sleep(0.01)",
    ],
)
def test_a_test_that_waits_for_ever_ends_the_process(tmp_path: Path, waiting: str) -> None:
    result = run(tmp_path, f"def test_one():\n    {waiting}\n")
    assert result.returncode == -signal.SIGXCPU, result.stdout


def test_a_test_that_waits_for_its_child_goes_on(tmp_path: Path) -> None:
    waiting = "import subprocess, sys\n    subprocess.run(['sleep', '2'], check=True)"
    result = run(tmp_path, f"def test_one():\n    {waiting}\n")
    assert "1 passed" in result.stdout


def test_each_test_may_wait_for_almost_so_long(tmp_path: Path) -> None:
    result = run(tmp_path, "import time\ndef test_one(): time.sleep(0.6)\ndef test_two(): time.sleep(0.6)\n")
    assert "2 passed" in result.stdout
