"""Runs programs in plain processes, outside any sandbox, to know what is right independently of the product."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sandlot_grade.program import Program

from tests.waiting import SECONDS

# Each program gets a fork of one interpreter, which runs it to its end as its own: a start of Python takes longer than
# most programs do.
FORKS = """
import gc, json, os, signal, sys
gc.freeze()
for line in sys.stdin:
    given = json.loads(line)
    child = os.fork()
    if child == 0:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit()
signal.alarm(given["seconds"])
for number, name in ((0, "in"), (1, "out"), (2, "err")):
    os.dup2(os.open(given[name], os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), number)
exec(compile(given["source"], "candidate", "exec"), {})
"""


@dataclass(frozen=True)
class PlainRun:
    passed: bool
    timed_out: bool
    exit_code: int
    stderr: str


class Plain:
    """Runs one program at a time."""

    def __init__(self, process: subprocess.Popen[str], directory: Path) -> None:
        self._process = process
        self._out, self._err = directory / "out", directory / "err"

    def run(self, program: Program, *, timeout: float = SECONDS) -> PlainRun:
        asked = {"source": program.source, "seconds": round(timeout), "in": "/dev/null"}
        asked |= {"out": str(self._out), "err": str(self._err)}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        passed = program.passed(
            verdict="exited" if code >= 0 else "signaled",
            exit_code=code,
            stdout=self._out.read_text(),
            truncated=False,
        )
        return PlainRun(
            passed=passed,
            timed_out=code == -signal.SIGALRM,
            exit_code=code,
            stderr=self._err.read_text(),
        )


@contextmanager
def plain() -> Iterator[Plain]:
    """The interpreter ends with the block."""
    with (
        tempfile.TemporaryDirectory() as directory,
        subprocess.Popen(
            [sys.executable, "-I", "-c", FORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        yield Plain(process, Path(directory))


def run_plain(program: Program, *, timeout: float = SECONDS) -> PlainRun:
    """One program alone."""
    with plain() as interpreter:
        return interpreter.run(program, timeout=timeout)
