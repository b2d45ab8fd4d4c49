"""tools/mutation.py on a small repository: which mutants are killed, hang or survive."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

GROUP = """
[waits]
source = "src"
files = ["waits.py"]
functions = ["waits.*"]
tests = ["tests/test_waits.py"]
"""
CODE = """
def pause():
    return 0.0


def is_over():
    return True


def answer():
    return 42
"""
TESTS = """
import time

from waits import answer, is_over, pause


def test_a_pause_is_over():
    time.sleep(pause())


def test_nobody_waits_for_ever():
    while not is_over():
        time.sleep(0.01)


def test_the_answer():
    assert answer() == 42
"""
CONFTEST = """
from hypothesis import settings

settings.register_profile("mutation")
"""


@pytest.mark.slow
def test_mutants_are_killed_or_hang_and_a_survivor_fails_the_run(tmp_path: Path) -> None:
    files = {
        "pyproject.toml": '[tool.pytest.ini_options]\naddopts = "--import-mode=importlib"\npythonpath = ["."]\n',
        "src/waits.py": CODE,
        "tests/conftest.py": CONFTEST,
        "tests/test_waits.py": TESTS,
        "tests/mutation.toml": GROUP,
        "tests/mutation-survivors.toml": "",
    }
    for program in (*ROOT.glob("tools/mutation*.py"), ROOT / "tests" / "plugins" / "hangs.py"):
        files[str(program.relative_to(ROOT))] = program.read_text()
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    command = [sys.executable, str(tmp_path / "tools" / "mutation.py")]
    run = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert "waits.pause: survived" in run.stdout, run.stdout
    assert "3 changes, 2 noticed (1 by a hang), 0 explained, 1 unexplained" in run.stdout
    assert run.returncode == 1
