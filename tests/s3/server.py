"""A real S3 server on loopback over a directory: Versity's gateway, which `python -m tests.s3` builds."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from sandlot_gateway.checkpoints.s3.signing import Credentials
from sandlot_gateway.s3_place import Place, place

from tests import plain_http
from tests.leaks import session_servers
from tests.ports import free_port
from tests.stopped import stopped
from tests.waiting import wait_until

_NAME = "versitygw"
BUCKET = "checkpoints"


def program() -> Path | None:
    """The server: of $SANDLOT_CLUSTER_BIN, else of the test cluster's cache."""
    given = os.environ.get("SANDLOT_CLUSTER_BIN")
    path = (Path(given) if given else Path.home() / ".cache/sandlot-cluster/bin") / _NAME
    return path if os.access(path, os.X_OK) else None


class S3Server:
    """One bucket. Each test has a prefix of its own in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self.keys = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": secrets.token_hex(16)}
        (directory / "buckets" / BUCKET).mkdir(parents=True)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def credentials(self) -> Credentials:
        return Credentials(self.keys)

    def place(self, *, bucket: str = BUCKET, prefix: str | None = None, port: int | None = None) -> Place:
        prefix = prefix if prefix is not None else f"test-{secrets.token_hex(4)}"
        return place(f"s3://{bucket}/{prefix}", endpoint=f"http://127.0.0.1:{port or self.port}")

    def start(self) -> None:
        path = program()
        assert path is not None
        secret = {"ROOT_ACCESS_KEY": self.keys["AWS_ACCESS_KEY_ID"]}
        secret["ROOT_SECRET_KEY"] = self.keys["AWS_SECRET_ACCESS_KEY"]
        with (self.directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(path),
                    "--port",
                    f"127.0.0.1:{self.port}",
                    "--quiet",
                    "posix",
                    str(self.directory / "buckets"),
                ],
                env={**os.environ, **secret},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,
            )
        session_servers.add(self._process.pid)
        wait_until(self._answers, what="the S3 server answers")

    def stop(self) -> None:
        """As in a crash."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            session_servers.discard(self._process.pid)
            self._process = None

    @contextmanager
    def away(self) -> Iterator[None]:
        """For the block nobody listens on its port."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """For the block it keeps its connections and says nothing more."""
        assert self._process is not None
        with stopped(self._process.pid):
            yield

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.directory / "server.log").read_text()
        try:
            return plain_http.get(f"{self.endpoint}/{BUCKET}").status_code == 403  # without a signature
        except httpx.TransportError:
            return False


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    if program() is None:
        pytest.skip(f"needs {_NAME} (`python -m tests.s3` builds it)")
    with tempfile.TemporaryDirectory(prefix="sandlot-s3-") as directory:
        server = S3Server(Path(directory))
        server.start()
        try:
            yield server
        finally:
            server.stop()
