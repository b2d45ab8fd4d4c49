"""Runs kubectl, which has the operator's credentials of the cluster: a proxy for requests, forwards to pods."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .deadline import NEVER, Deadline

_SECONDS = 30.0


class CannotRun(Exception):
    """The cluster cannot be reached at all; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Kubectl:
    program: str
    options: tuple[str, ...]
    version: str
    context: str
    deadline: Deadline = NEVER

    @contextmanager
    def proxy(self) -> Generator[tuple[Path, Path]]:
        """Yield a Unix socket whose requests kubectl passes on with its credentials, and the file of its errors.

        The directory is this user's alone: with a TCP port every user of this machine could use the credentials.
        """
        with tempfile.TemporaryDirectory(prefix="sandlot-kubectl-") as directory:
            socket, errors = Path(directory) / "socket", Path(directory) / "errors"
            command = [*self._command("proxy"), f"--unix-socket={socket}"]
            with _running(command, errors, seconds=self.deadline.within(_SECONDS)):
                yield socket, errors

    @contextmanager
    def forward(self, namespace: str, pod: str, port: int) -> Generator[int]:
        """Yield a port of this machine that leads to a pod's. Raises CannotRun."""
        with tempfile.TemporaryDirectory(prefix="sandlot-kubectl-") as directory:
            words = [
                "port-forward",
                "--address=127.0.0.1",
                "--namespace",
                namespace,
                f"pod/{pod}",
                f":{port}",
            ]
            errors, seconds = Path(directory) / "errors", self.deadline.within(_SECONDS)
            with _running(self._command(*words), errors, seconds=seconds) as line:
                yield int(line.split(" -> ")[0].rpartition(":")[2])

    def _command(self, *words: str) -> list[str]:
        return [self.program, *self.options, *words]


def find(*, kubeconfig: str | None, context: str | None, deadline: Deadline) -> Kubectl:
    """Return the kubectl of PATH with these options. Raises CannotRun."""
    program = shutil.which("kubectl")
    if program is None:
        raise CannotRun(
            "kubectl is not on PATH, and the cluster is reached through it: install kubectl, or extend PATH"
        )
    given = (("--kubeconfig", kubeconfig), ("--context", context))
    options = tuple(word for name, value in given if value for word in (name, value))
    version = _output([program, "version", "--client", "-o", "json"])
    try:
        text = str(json.loads(version)["clientVersion"]["gitVersion"])
    except (ValueError, KeyError, TypeError) as error:
        raise CannotRun(
            f"{program} does not tell its version, but {version[:80]!r}: replace this kubectl"
        ) from error
    return Kubectl(program, options, text, context or _current(program, options), deadline)


def _current(program: str, options: Sequence[str]) -> str:
    """Return the current context; a pod has none, and kubectl uses its service account."""
    try:
        return _output([program, *options, "config", "current-context"]).strip()
    except CannotRun:
        return "none"


def _output(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotRun(f"kubectl cannot run: {error}: check the kubectl on PATH") from error
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise CannotRun(f"kubectl failed: {said}: check --kubeconfig and --context")
    return done.stdout


@contextmanager
def _running(command: Sequence[str], errors: Path, *, seconds: float) -> Generator[str]:
    """Yield the first line of the output, which kubectl prints when it listens; kill it at the end."""
    with (
        errors.open("wb") as log,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log) as process,
    ):
        # kubectl itself waits for an unreachable API server without end.
        patience = threading.Timer(seconds, process.kill)
        patience.start()
        try:
            assert process.stdout is not None
            line = process.stdout.readline().decode(errors="replace")
            patience.cancel()
            if not line:
                said = (
                    " ".join(errors.read_text(errors="replace").split())
                    or f"no answer within {seconds:.0f} s"
                )
                raise CannotRun(f"kubectl failed: {said}: check --kubeconfig and --context")
            yield line
        finally:
            patience.cancel()
            process.kill()
