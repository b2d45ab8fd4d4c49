"""Where audit records go: a file that is renamed, full or missing, and stdout; what cannot be written is counted."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import signal
import ssl
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest
from sandlot_gateway.audit.file import AuditFile
from sandlot_gateway.audit.log import AuditLog
from sandlot_gateway.metrics import Metrics

from tests import plain_http
from tests.certificates import issued
from tests.gateway.audit_records import record_of, records
from tests.gateway.conftest import API, Running, running
from tests.ports import free_port
from tests.waiting import until, wait_until


async def stats(box: Running, request: str) -> None:
    answer = await box.client.get(f"{API}/stats", headers={"X-Request-Id": request})
    assert answer.status_code == 200


async def written(box: Running, records: int) -> None:
    """Wait until so many records are."""
    wanted = f'sandlot_audit_records_total{{outcome="written"}} {records}.0\n'

    async def are_there() -> bool:
        return wanted in await box.metrics()

    await until(are_there, what=wanted)


async def test_a_file_that_was_renamed_or_deleted_is_begun_anew(state_dir: Path, machine) -> None:
    path = state_dir / "audit.log"
    async with running(state_dir, machine, audit_log=path) as box:
        await stats(box, "first")
        await record_of(path, "first")
        assert path.stat().st_mode & 0o777 == 0o600
        path.rename(state_dir / "audit.log-yesterday")
        await stats(box, "second")
        await record_of(path, "second")
        path.unlink()
        await stats(box, "third")
        await record_of(path, "third")
    assert [record["request"] for record in records(state_dir / "audit.log-yesterday")] == ["first"]
    assert [record["request"] for record in records(path)] == ["third"]


async def test_a_restarted_gateway_appends(state_dir: Path, machine) -> None:
    path = state_dir / "audit.log"
    for request in ("first", "second"):
        async with running(state_dir, machine, audit_log=path) as box:
            await stats(box, request)
    assert [record["request"] for record in records(path)] == ["first", "second"]


async def test_a_file_has_a_bound_and_so_many_before_it_are_kept(state_dir: Path, machine) -> None:
    path = state_dir / "audit.log"
    sent = [f"{number:03d}{'x' * 125}" for number in range(700)]
    async with running(state_dir, machine, audit_log=path, audit_max=1 << 16, audit_keep=2) as box:
        for first in range(0, 700, 50):
            await asyncio.gather(*(stats(box, request) for request in sent[first : first + 50]))
            await written(box, first + 50)
    files = [Path(f"{path}.2"), Path(f"{path}.1"), path]
    assert {name for name in os.listdir(state_dir) if name.startswith("audit")} == {
        file.name for file in files
    }
    assert all(0 < file.stat().st_size <= 1 << 16 for file in files)
    kept = [record["request"] for file in files for record in records(file)]
    # The earliest were in files that are gone; none of the others is lost or there twice.
    assert len(set(kept)) == len(kept) < 700
    assert set(kept) >= set(sent[-250:])


def test_none_before_it_may_be_kept(state_dir: Path) -> None:
    path = state_dir / "audit.log"
    file = AuditFile(path, max_bytes=10, keep=0)
    for line in (b"first\n", b"second\n"):
        assert file.write(memoryview(line)) == len(line)
    file.close()
    assert [each.read_bytes() for each in state_dir.iterdir()] == [b"second\n"]


async def test_a_full_disk_fails_no_call_and_loses_nothing_at_first(
    state_dir: Path, machine, caplog: pytest.LogCaptureFixture
) -> None:
    path = state_dir / "audit.log"
    path.symlink_to("/dev/full")
    async with running(state_dir, machine, audit_log=path) as box:
        await stats(box, "first")
        await until(lambda: "No space left on device" in caplog.text)
        await stats(box, "second")
        text = await box.metrics()
        assert "sandlot_audit_write_failures_total 0.0" not in text
        assert 'sandlot_audit_records_total{outcome="written"} 0.0' in text
        (state_dir / "room").touch()
        (state_dir / "link").symlink_to(state_dir / "room")
        # At once: a write between an end of the one and the begin of the other would make a file there.
        (state_dir / "link").replace(path)
        await record_of(path, "second")
        assert [record["request"] for record in records(path)] == ["first", "second"]
        await written(box, 2)
        assert 'sandlot_audit_records_total{outcome="lost"} 0.0' in await box.metrics()
    said = [record.levelno for record in caplog.records if record.name == "sandlot_gateway.audit.log"]
    assert said == [logging.ERROR, logging.WARNING]


async def test_records_that_wait_have_a_bound_and_those_beyond_it_are_counted(state_dir: Path) -> None:
    path = state_dir / "audit.log"
    path.symlink_to("/dev/full")
    metrics = Metrics()
    log = AuditLog(AuditFile(path, max_bytes=1 << 30, keep=0), where="here", counted=metrics)
    line = b"x" * 1023 + b"\n"
    for _ in range(9 << 10):
        log.add(line)
    assert 'sandlot_audit_records_total{outcome="lost"} 1024.0' in metrics.text().decode()
    await until(lambda: b"sandlot_audit_write_failures_total 0.0" not in metrics.text())
    path.unlink()
    await log.close(timeout=30)
    assert path.stat().st_size == 8 << 20


async def test_a_reader_that_hangs_does_not_hold_up_the_end(
    state_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = state_dir / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    file = AuditFile(path, max_bytes=1 << 30, keep=0)
    log = AuditLog(file, where="here", counted=Metrics())
    log.add(b"x" * (1 << 20) + b"\n")
    async with asyncio.timeout(60):
        await log.close(timeout=0.2)
    assert (
        "the gateway ends with 1048577 bytes of records that the audit log here does not take" in caplog.text
    )
    os.close(reader)  # ends the write
    await until(lambda: not [each for each in threading.enumerate() if each.name.startswith("audit")])
    file.close()


def test_a_pipe_that_nobody_reads_is_refused_at_once(state_dir: Path) -> None:
    os.mkfifo(state_dir / "pipe")
    with pytest.raises(OSError, match="No such device"):
        AuditFile(state_dir / "pipe", max_bytes=1 << 30, keep=0).open()


def test_a_record_that_was_cut_is_finished_or_left_out(state_dir: Path) -> None:
    path = state_dir / "audit.log"
    lines = [bytes([letter]) * 399 + b"\n" for letter in b"abc"]
    for renamed in (False, True):
        path.unlink(missing_ok=True)
        file = AuditFile(path, max_bytes=1 << 20, keep=0)
        data = memoryview(b"".join(lines))
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        try:
            assert file.write(data) == 1000
            with pytest.raises(OSError, match="File too large"):
                file.write(data[1000:])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        if renamed:
            path.rename(f"{path}-full")
        done = 1000
        while done < len(data):
            done += file.write(data[done:])
        file.write(memoryview(b"next\n"))
        file.close()
        whole = [] if renamed else lines
        assert path.read_bytes().splitlines(keepends=True) == [*whole, b"next\n"]


async def test_a_log_that_cannot_be_opened_ends_the_start(state_dir: Path, machine) -> None:
    with pytest.raises(OSError, match=r"cannot open the audit log .*/missing/audit.log: No such file"):
        async with running(state_dir, machine, audit_log="missing/audit.log"):
            pass


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: the real local backend starts")
def test_stdout_has_the_records_and_nothing_else(state_dir: Path) -> None:
    """Of a plain call, and of one over TLS, which another server takes."""
    certificate = issued(state_dir, "127.0.0.1")
    port = free_port()
    options = ["--state-dir", str(state_dir), "--port", "0", "--api-key", "k", "--audit-log", "-"]
    tls = ["--tls-cert", str(certificate.chain), "--tls-key", str(certificate.key), "--tls-port", str(port)]
    command = [sys.executable, "-m", "sandlot_gateway", *options, *tls]
    endpoint = state_dir / "endpoint.json"
    trust = ssl.create_default_context(cafile=str(certificate.authority))
    headers = {"Authorization": "Bearer k", "X-Request-Id": "plain"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        url = json.loads(wait_until(lambda: endpoint.read_text() if endpoint.exists() else ""))["url"]
        assert plain_http.get(f"{url}{API}/stats", headers=headers).status_code == 200
        with httpx.Client(
            http1=False, http2=True, verify=trust, headers={"X-Request-Id": "tls"}, timeout=60
        ) as client:
            assert client.get(f"https://127.0.0.1:{port}{API}/stats").status_code == 401
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    found = [json.loads(line) for line in out.splitlines()]
    assert [(one["type"], one["action"], one["peer"]) for one in found] == [
        ("audit", "stats.get", "127.0.0.1")
    ] * 2
    assert [(one["request"], one["tenant"], one["status"]) for one in found] == [
        ("plain", "default", 200),
        ("tls", None, 401),
    ]
    assert f"sandlot: ready at {url}" in err
