"""Renewed TLS files: a machine that cannot open them for a moment does not keep the earlier certificate for good."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trustme
from sandlot_contract.tls_files import RETRY_AFTER, TlsFiles

from tests import sidecar_certificates as certificates

CA = trustme.CA(key_type=trustme.KeyType.ECDSA)


@contextmanager
def no_files_left() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_files_that_could_not_be_opened_are_tried_again_after_a_pause(tmp_path: Path) -> None:
    now = 0.0
    told: list[str | None] = []
    files = TlsFiles(str(certificates.write(tmp_path, CA)), failing=told.append, clock=lambda: now)
    first = files.client()
    certificates.write(tmp_path, CA)
    with no_files_left():
        assert files.client() is first
        assert files.client() is first
    assert files.client() is first
    (reason,) = told
    assert reason is not None
    assert "Too many open files" in reason
    now = RETRY_AFTER
    renewed = files.client()
    assert renewed is not first
    assert told[1:] == [None]
    # What the files say stays wrong until they change.
    (tmp_path / "tls.key").write_text("broken")
    assert files.client() is renewed
    now *= 3
    assert files.client() is renewed
    assert len(told) == 3
    certificates.write(tmp_path, CA)
    assert files.client() is not renewed
