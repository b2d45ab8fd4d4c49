"""Copies in a gateway's memory without sandboxes: what a store finds once that gateway is dead."""

from __future__ import annotations

import os
import time
from pathlib import Path

from sandlot_gateway.checkpoints.rules import StoreLimits
from sandlot_gateway.checkpoints.store import Store

from tests.gateway.checkpoint_documents import checkpoint


def test_a_copy_in_memory_is_gone_with_its_gateway(tmp_path: Path) -> None:
    """Its file only counts for the limits; its lock shows that the gateway is alive."""
    ours, theirs = (Store(tmp_path, limits=StoreLimits()) for _ in range(2))
    made = checkpoint()
    made.expires_at, made.shared = time.time() + 60, True
    part = ours.begin(made)
    part.reserve(1 << 30)
    lock = os.dup(part.fd)
    ours.finish(made, part)
    assert [one.state for one in theirs.all()] == ["DURABLE"]
    assert theirs.usage()[made.tenant] == 1 << 30
    os.close(lock)
    assert theirs.get(made.id) is None
    assert theirs.all() == []
    assert list(tmp_path.iterdir()) == []


def test_a_copy_in_memory_whose_gateway_died_before_its_document_is_no_archive(tmp_path: Path) -> None:
    ours, theirs = (Store(tmp_path, limits=StoreLimits()) for _ in range(2))
    made = checkpoint()
    made.shared = True
    part = ours.begin(made)
    part.reserve(10)
    part.path.rename(part.path.with_name("manifest"))
    assert [one.state for one in theirs.all()] == ["PENDING"]
    part.close()
    assert [one.state for one in theirs.all()] == ["FAILED"]
