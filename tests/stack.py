"""A whole local stack as a test needs it: a gateway process that can be killed, started again, and taken away."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from tests.complaints import WARNINGS_SHOWN, assert_no_complaints
from tests.leaks import no_leaks
from tests.ports import free_port


class Stack:
    """`python -m sandlot_gateway` on a port of this process's own over one state directory.

    `kill` is SIGKILL; `start` after it is the restart of the same stack on the same port. Leaving the block ends
    the gateway together with its sandboxes and takes away what a killed gateway left. It raises AssertionError when
    a gateway has written a Python warning or an exception that nothing caught into its log.
    """

    def __init__(
        self,
        state_dir: Path,
        *,
        options: tuple[str, ...] = (),
        env: dict[str, str] | None = None,
        name_server: str | None = None,
    ) -> None:
        self.state_dir = state_dir
        self.options = options
        self.env = env or {}
        self.name_server = name_server  # instead of the machine's
        self.api_key = "test-key"
        # The kernel gives one of its own to others while the gateway is down.
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, *, timeout: float = 100.0) -> Stack:
        assert self.process is None or self.process.poll() is not None, "the gateway is running already"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *self._within(),
                    *(
                        sys.executable,
                        "-m",
                        "sandlot_gateway",
                        "--backend",
                        "local",
                        "--port",
                        str(self.port),
                    ),
                    *("--api-key", self.api_key, "--state-dir", str(self.state_dir)),
                    "--end-sandboxes-on-exit",
                    # On a loaded machine a cold start outlasts the usual 10 s, and its create is answered PENDING.
                    *("--wait-seconds", "25"),
                    *self.options,
                ],
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **WARNINGS_SHOWN, **self.env},
                start_new_session=True,  # a ^C is for whoever uses it, who then ends it in order
            )
        assert self.process.stdout is not None
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            readable, _, _ = select.select([self.process.stdout], [], [], max(left, 0))
            line = self.process.stdout.readline() if readable else b""
            if not line:
                raise AssertionError(f"the gateway did not get ready: {self.log()[-3000:]}")
            if line.startswith(b"sandlot: ready at "):
                break
        return self

    def _within(self) -> list[str]:
        """What a program is started by that asks the stack's own name server."""
        if self.name_server is None:
            return []
        file = self.state_dir.parent / f"{self.state_dir.name}.resolv.conf"
        file.write_text(f"nameserver {self.name_server}\noptions timeout:1 attempts:1\n")
        bind = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", bind, str(file)]

    @property
    def _log(self) -> Path:
        return self.state_dir.parent / f"{self.state_dir.name}.log"

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        """The gateway dies at once, as in a crash."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def terminate(self, *, timeout: float = 100.0) -> int:
        """The gateway is asked to end; returns its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=timeout)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def __enter__(self) -> Stack:
        try:
            return self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process is not None and self.process.poll() is None:
            try:
                self.terminate()
            except subprocess.TimeoutExpired:
                self.kill()
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()  # also of one that ended by itself
        subprocess.run(
            [
                sys.executable,
                "-m",
                "sandlot_gateway.backends.local.clean",
                "--state-dir",
                str(self.state_dir),
                "--force",
            ],
            check=False,
            capture_output=True,
            timeout=100,
        )
        if kind is None:
            assert_no_complaints(self.log())


@contextmanager
def private_stack(
    *options: str,
    name_server: str | None = None,
    env: dict[str, str] | None = None,
    descriptors: bool = False,
) -> Iterator[Stack]:
    """In a directory of its own, with a look at what is left behind; skips the test without root.

    `descriptors`: also at those of this process.
    """
    if os.geteuid() != 0:
        import pytest  # not at the top: the load tests have a Stack too, and the import takes a quarter of their start

        pytest.skip("needs root: real namespaces and cgroups")
    # Not pytest's own directory: its long path leaves no room for the names of Unix sockets (108 bytes).
    with (
        tempfile.TemporaryDirectory(prefix="sandlot-") as directory,
        no_leaks(marker=directory, descriptors=descriptors),
        Stack(Path(directory) / "state", options=options, name_server=name_server, env=env) as running,
    ):
        yield running
