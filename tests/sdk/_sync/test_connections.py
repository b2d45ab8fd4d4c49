# This file is auto-generated from tests/sdk/_async/test_connections.py by tools/async_to_sync.py: do not change it.
"""How many connections streams and uploads take, and what happens when the server has closed one that waits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sandlot import ConnectionFailed, Sandbox, SandlotError
from sandlot._protocol.messages import with_query

from tests.sdk._sync.retrying import Clock
from tests.sdk.service.faults import Fault
from tests.sdk.service.server import Service

FILES = 500


def test_a_copy_of_many_files_takes_few_connections(
    faulty: Sandbox, service: Service, tmp_path: Path
) -> None:
    (tmp_path / "tree").mkdir()
    for number in range(FILES):
        (tmp_path / "tree" / str(number)).write_text("text")
    faulty.files.upload(tmp_path / "tree", "/tmp/tree")
    faulty.files.download("/tmp/tree", tmp_path / "back")
    assert len(service.calls("/files", "PUT")) == len(service.calls("/files", "GET")) == FILES
    assert service.connections <= 20


def test_of_many_streams_at_once_few_connections_stay(faulty: Sandbox, service: Service) -> None:
    faulty.files.write("/tmp/file", "text")
    route = with_query("/files", {"path": "/tmp/file"})
    bodies = [faulty._plane.open("GET", route) for _ in range(100)]
    assert service.connections >= 100
    for body in bodies:
        assert body.read_all() == b"text"
    for pool in faulty._plane.client.transport._pools.values():
        assert len(pool.idle) == len(pool.open) == 64


@pytest.mark.parametrize(
    "fault", [Fault("/files", refuse=True), Fault("/files", lose=True)], ids=["refuse", "lose"]
)
def test_an_upload_or_stream_over_a_closed_connection_is_sent_again_at_once(
    patient: Sandbox, service: Service, clock: Clock, tmp_path: Path, fault: Fault
) -> None:
    (tmp_path / "file").write_bytes(b"x" * 3_000_000)
    patient.files.mkdir("/tmp")
    service.faults.append(fault)
    assert patient.files.upload(tmp_path / "file", "/tmp/file") == 3_000_000
    assert len(service.calls("/files", "PUT")) == 2
    assert len(patient.files.read("/tmp/file")) == 3_000_000
    if fault.refuse:
        service.faults.append(fault)
        assert sum([len(piece) for piece in patient.files.stream("/tmp/file")]) == 3_000_000
    assert clock.slept == []


def test_what_can_be_sent_only_once_takes_a_new_connection(patient: Sandbox, service: Service) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"text"

    before = service.connections
    patient.files.write("/tmp/once", pieces())
    assert service.connections == before + 1
    service.faults.append(Fault("/files", refuse=True))
    with pytest.raises(ConnectionFailed):
        patient.files.write("/tmp/once", pieces())
    assert len(service.calls("/files", "PUT")) == 2


@pytest.mark.parametrize("status", [401, 404, 409, 413])
def test_what_follows_an_upload_that_is_answered_early_takes_another_connection(
    faulty: Sandbox, service: Service, tmp_path: Path, status: int
) -> None:
    (tmp_path / "file").write_bytes(bytes(10_000_000))
    faulty.files.mkdir("/tmp")
    faulty.files.write("/tmp/other", "text")
    sent = len(service.calls("/files", "PUT"))
    refusal = {"error": "refused", "message": "not now"}
    service.faults.append(Fault("/files", early=True, status=status, body=refusal))
    if status == 401:  # sent again with a new token
        assert faulty.files.upload(tmp_path / "file", "/tmp/file") == 10_000_000
        sent += 1
    else:
        with pytest.raises(SandlotError, match="not now"):
            faulty.files.upload(tmp_path / "file", "/tmp/file")
    assert faulty.files.read("/tmp/other") == b"text"
    assert len(service.calls("/files", "PUT")) == sent, "the body of the first was sent to its end"
