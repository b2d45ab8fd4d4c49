"""The published client makes checkpoints and restores them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.prime.conftest import run_client
from tests.prime.server import Server

pytestmark = [pytest.mark.clients, pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(600)]

SCRIPT = Path(__file__).with_name("checkpoint_script.py")


@pytest.mark.parametrize("version", ["0.4.7", "0.5.1"])
def test_checkpoint_and_restore(server: Server, version: str):
    seen = run_client(server, SCRIPT, package="prime-sandboxes", version=version)
    missing, nothing = seen.pop("missing"), seen.pop("from nothing")
    assert "404" in missing
    assert "404" in nothing
    assert "checkpoint_id" in nothing
    assert seen == {
        "begun": [True, True, 0],
        "made": ["DURABLE", server.image, True, None],
        "got": True,
        "image": server.image,
        "files": ["big: OK", "text", "750", "gone", ""],
        "child": [True, 1],
        "listed": [True],
        "one": 0,
        "batch": [2, [["cp-missing", "NOT_FOUND"]]],
        "deleted": [True, 0],
    }
