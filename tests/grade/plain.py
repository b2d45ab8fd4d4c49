"""Runs a program in a plain subprocess, outside any sandbox, to know what is right independently of the product."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

from sandlot_grade.program import Program

from tests.waiting import SECONDS


@dataclass(frozen=True)
class PlainRun:
    passed: bool
    timed_out: bool
    exit_code: int | None
    stderr: str


def run_plain(program: Program, *, timeout: float = SECONDS) -> PlainRun:
    try:
        done = subprocess.run(
            [
                sys.executable,
                "-I",
                "-c",
                "import sys; exec(compile(sys.stdin.read(), 'candidate', 'exec'), {})",
            ],
            input=program.source,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        return PlainRun(passed=False, timed_out=True, exit_code=None, stderr="")
    passed = program.passed(
        verdict="exited" if done.returncode >= 0 else "signaled",
        exit_code=done.returncode,
        stdout=done.stdout,
        truncated=False,
    )
    return PlainRun(passed=passed, timed_out=False, exit_code=done.returncode, stderr=done.stderr)
