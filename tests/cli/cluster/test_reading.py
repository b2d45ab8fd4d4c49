"""What the cluster's parts answer wrongly is a value that says so: no answer ends the doctor."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from threading import Thread

import pytest
from sandlot.cli.cluster.api import Unread
from sandlot.cli.cluster.doc import Doc
from sandlot.cli.cluster.kubectl import Kubectl
from sandlot.cli.cluster.pages import metrics, page

from tests.cli.cluster.worlds import pod


@contextmanager
def answering(answer: bytes | Callable[[], bytes]) -> Iterator[int]:
    """A port that answers one request with this, made when the request is there, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                while b"\r\n\r\n" not in connection.recv(65536, socket.MSG_PEEK):
                    pass
                connection.recv(65536)
                connection.sendall(answer if isinstance(answer, bytes) else answer())

        thread = Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


def forwarding(port: int, directory: Path) -> Kubectl:
    """A kubectl whose every forward leads to this port."""
    program = directory / "kubectl"
    program.write_text(f"#!/bin/sh\necho 'Forwarding from 127.0.0.1:{port} -> 8642'\nexec sleep 60\n")
    program.chmod(0o700)
    return Kubectl(str(program), (), "v1.36.3", "test")


@pytest.mark.parametrize(
    "answer",
    [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsandlot_x 1.0\n"],
    ids=["nothing", "nonsense", "a part"],
)
def test_a_metrics_page_that_breaks_off_is_unread(answer: bytes, tmp_path: Path) -> None:
    with answering(answer) as port:
        found = metrics(forwarding(port, tmp_path), Doc(pod("g-1", "gateway")), 8642, None)
    assert isinstance(found, Unread)
    assert not found.denied
    assert found.reason


def test_a_whole_metrics_page_is_read(tmp_path: Path) -> None:
    page = b"sandlot_x 1.0\n"
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(page), page)) as port:
        found = metrics(forwarding(port, tmp_path), Doc(pod("g-1", "gateway")), 8642, None)
    assert found == page.decode()


@pytest.mark.parametrize("status", [b"200 OK", b"401 Unauthorized"], ids=["read", "refused"])
@pytest.mark.parametrize("late", [0, 300], ids=["right", "late"])
def test_a_pods_clock_is_read_from_its_answer(late: int, status: bytes, tmp_path: Path) -> None:
    """Whether or not it gives its metrics."""

    def answer() -> bytes:
        date = formatdate(time.time() - late, usegmt=True).encode()
        return b"HTTP/1.1 %s\r\nDate: %s\r\nContent-Length: 0\r\n\r\n" % (status, date)

    with answering(answer) as port:
        found = page(forwarding(port, tmp_path), Doc(pod("g-1", "gateway")), 8642, None)
    assert isinstance(found.text, Unread) is (status != b"200 OK")
    assert found.clock is not None
    # A date has whole seconds, and the answer takes a while.
    assert found.clock.least - 0.001 <= -late <= found.clock.most + 0.001
    assert found.clock.exceeds(10) is bool(late)


@pytest.mark.parametrize("date", [b"", b"Date: yesterday\r\n"], ids=["none", "no date"])
def test_an_answer_without_a_date_tells_no_clock(date: bytes, tmp_path: Path) -> None:
    with answering(b"HTTP/1.1 200 OK\r\n%sContent-Length: 0\r\n\r\n" % date) as port:
        found = page(forwarding(port, tmp_path), Doc(pod("g-1", "gateway")), 8642, None)
    assert (found.text, found.clock) == ("", None)
