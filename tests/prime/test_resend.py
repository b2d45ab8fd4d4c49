"""Clients that send a command again when its gateway was killed: it runs again, but never twice at a time."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from tests.prime.conftest import client_python
from tests.prime.environments import client_env
from tests.stack import Stack

_PATIENCE = 5.0  # seconds; they try after 1, 2 and 4 s more

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("version", "resends"), [("0.2.6", False), ("0.2.27", True), ("0.2.36", True), ("0.5.1", False)]
)
def test_command_in_flight_when_its_gateway_is_killed(stack: Stack, version: str, resends: bool):
    python = client_python("prime-sandboxes", version)
    with tempfile.TemporaryDirectory() as home:
        client = subprocess.Popen(
            [str(python), "-B", str(Path(__file__).with_name("resend_script.py"))],
            env=client_env(Path(home), url=stack.url, api_key=stack.api_key),
            cwd=home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert client.stdout is not None
            assert client.stdout.readline() == "ready\n", client.communicate()[1]
            stack.kill()
            killed = time.monotonic()
            stack.start()
            away = time.monotonic() - killed
            out, err = client.communicate("\n", timeout=200)
        finally:
            client.kill()
            client.wait()
    assert client.returncode == 0, err[-3000:]
    seen = json.loads(out)
    assert seen["left"] == ""
    if resends and away > _PATIENCE:
        pytest.skip(f"the gateway was away for {away:.1f} s, longer than the client tries")
    if resends:
        assert seen == {"answer": ["done\n"], "runs": ["begin", "begin", "end"], "left": ""}
    else:
        assert seen == {"answer": ["APIError"], "runs": ["begin"], "left": ""}
