"""Runs programs: an error names the command and carries the end of what it printed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


class ClusterError(Exception):
    """The test cluster's tooling cannot do what was asked; the message says why."""


class CommandFailed(ClusterError):
    """A program ended with an error."""

    def __init__(self, *, command: Sequence[str], code: int, output: str) -> None:
        super().__init__(f"{' '.join(map(str, command))}: exit code {code}\n{output[-4000:].rstrip()}")
        self.code = code
        self.output = output


def say(message: str) -> None:
    """One line of progress for the person who waits."""
    print(f"cluster: {message}", file=sys.stderr, flush=True)


def run(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str | bytes | None = None,
    timeout: float = 1800,
    log: Path | None = None,
) -> str:
    """Runs a program to its end and gives its standard output; `log` keeps standard error as well."""
    words = [str(word) for word in command]
    data = stdin.encode() if isinstance(stdin, str) else stdin
    try:
        done = subprocess.run(
            words,
            env=env,
            cwd=cwd,
            input=data,
            stdin=subprocess.DEVNULL if data is None else None,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
    except FileNotFoundError as error:
        raise ClusterError(f"{words[0]}: not found") from error
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"{' '.join(words)}: no end within {timeout:.0f} s") from error
    out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(f"$ {' '.join(words)}\n{out}{err}")
    if done.returncode != 0:
        raise CommandFailed(command=words, code=done.returncode, output=out + err)
    return out


def succeeds(
    command: Sequence[str | Path], *, env: Mapping[str, str] | None = None, timeout: float = 60
) -> bool:
    """Whether a program ends with 0."""
    try:
        run(command, env=env, timeout=timeout)
    except ClusterError:
        return False
    return True
