"""After the deadline nothing is read of the API server, however it answers: page after page, slowly, or not at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer

import pytest
from sandlot.cli.cluster.api import Api, Unread
from sandlot.cli.cluster.deadline import Deadline

from tests.waiting import SECONDS

OVER = Unread("the time was over (--timeout)")
PAGE = json.dumps({"items": [{"metadata": {"name": "one"}}], "metadata": {"continue": "more"}}).encode()


class Handler(BaseHTTPRequestHandler):
    """Answers with a page that announces another, piece by piece if it is slow."""

    done: threading.Event
    slow: bool
    timeout = 60

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        if not self.slow:
            self.wfile.write(PAGE)
            return
        self.wfile.write(PAGE[:10])
        self.done.wait()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def proxy(*, slow: bool, ends: bool = False) -> Iterator[Path]:
    """Plays kubectl's proxy; `ends`: in the middle of the slow answer."""
    done = threading.Event()
    if ends:
        done.set()
    handler = type("Played", (Handler,), {"done": done, "slow": slow})
    # Not pytest's own directory: a socket's path has at most 108 bytes.
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "socket"
        with ThreadingUnixStreamServer(str(path), handler) as server:
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
            thread.start()
            try:
                yield path
            finally:
                done.set()
                server.shutdown()
                thread.join()


@pytest.mark.parametrize("slow", [False, True], ids=["pages without end", "an answer without end"])
def test_a_list_ends_at_the_deadline(slow: bool) -> None:
    with proxy(slow=slow) as socket:
        api = Api(socket, socket, Deadline.after(0.5))
        assert api.list("/api/v1", "pods") == OVER


@pytest.mark.parametrize(
    "ask",
    [
        lambda api: api.list("/api/v1", "pods"),
        lambda api: api.get("/api/v1/nodes/one"),
        lambda api: api.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {}),
        lambda api: api.text("/api/v1/namespaces/a/pods/b/log"),
    ],
    ids=["a list", "an object", "a review", "a log"],
)
def test_nothing_is_asked_after_the_deadline(ask: Callable[[Api], object]) -> None:
    nowhere = Path("/nowhere")
    assert ask(Api(nowhere, nowhere, Deadline.after(0))) == OVER
    found = ask(Api(nowhere, nowhere))
    assert isinstance(found, Unread)
    assert "FileNotFoundError" in found.reason


def test_an_answer_that_ends_early_is_not_taken_for_a_whole_one() -> None:
    with proxy(slow=True, ends=True) as socket:
        found = Api(socket, socket).text("/api/v1/namespaces/a/pods/b/log")
    assert isinstance(found, Unread)
    assert "IncompleteRead" in found.reason


KUBECTL = """\
#!/bin/sh
case "$*" in
*version*) echo '{"clientVersion": {"gitVersion": "v1.36.3"}}' ;;
*current-context*) echo test ;;
*proxy*) ln -s "$PROXY" "${2#--unix-socket=}" && echo Starting && exec sleep 60 ;;
esac
"""


def test_the_time_of_a_bundle_begins_with_the_command(tmp_path: Path) -> None:
    """With an API server that hangs from its first answer on."""
    program = tmp_path / "kubectl"
    program.write_text(KUBECTL)
    program.chmod(0o700)
    with proxy(slow=True) as socket:
        done = subprocess.run(
            [sys.executable, "-m", "sandlot", "support-bundle", "--timeout", "10"],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PROXY": str(socket)},
        )
    assert done.returncode == 2
    assert "the API server does not answer: the time was over (--timeout)" in done.stderr
    assert list(tmp_path.iterdir()) == [program], "no archive stays"
