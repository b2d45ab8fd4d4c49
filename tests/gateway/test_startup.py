"""How a gateway starts: its settings, its API key and its state directory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from sandlot_contract.template import Template
from sandlot_gateway.core.backend import BackendError
from sandlot_gateway.core.instances import PoolSpec
from sandlot_gateway.settings import Settings

from tests import plain_http
from tests.gateway.conftest import running
from tests.gateway.machine import Machine
from tests.waiting import SECONDS


async def test_two_gateways_do_not_share_a_state_directory(state_dir: Path, machine: Machine) -> None:
    async with running(state_dir, machine) as box:
        with pytest.raises(BackendError, match="in use"):
            async with running(state_dir, machine):
                pass
        assert (await box.client.get("/readyz")).status_code == 200
        endpoint = json.loads((state_dir / "endpoint.json").read_text())
        assert endpoint == {"url": box.url, "api_key": "key-a", "pid": os.getpid()}
        assert (state_dir / "endpoint.json").stat().st_mode & 0o077 == 0


async def test_without_any_key_one_is_made_and_kept(state_dir: Path, machine: Machine) -> None:
    keys = []
    for _ in range(2):
        async with running(state_dir, machine, api_keys=None) as box, plain_http.async_client() as client:
            keys.append(json.loads((state_dir / "endpoint.json").read_text())["api_key"])
            headers = {"Authorization": f"Bearer {keys[-1]}"}
            me = await client.get(f"{box.url}/api/v1/user/whoami", headers=headers)
            assert me.json()["data"]["id"] == "default"
    assert keys[0] == keys[1]


def test_settings_come_from_the_command_line_then_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from sandlot_gateway.__main__ import arguments

    monkeypatch.setenv("SANDLOT_PORT", "1234")
    monkeypatch.setenv("SANDLOT_DRAIN", "7")
    monkeypatch.setenv("SANDLOT_POOL", "a=1,b=python:3.11:2")
    settings = Settings(**arguments(["--port", "0", "--end-sandboxes-on-exit"]))
    assert (settings.port, settings.drain, settings.end_sandboxes_on_exit) == (0, 7.0, True)
    assert settings.pools() == [
        PoolSpec("a", Template(image="host"), 1),
        PoolSpec("b", Template(image="python:3.11"), 2),
    ]
    monkeypatch.setenv("SANDLOT_HOME", "/somewhere")
    assert Settings().state_dir == Path("/somewhere")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--port", "70000"], 2, "--port"),
        (["--pool", "x"], 2, "--pool"),
        (["--backend", "cloud"], 2, "--backend"),
        (["--api-keys", "k:bad tenant"], 1, "tenant"),
        (["--host", "192.0.2.1"], 1, "192.0.2.1"),
    ],
)
def test_a_bad_setting_is_said_in_one_line(
    state_dir: Path, arguments: list[str], code: int, says: str
) -> None:
    command = [
        sys.executable,
        "-m",
        "sandlot_gateway",
        "--state-dir",
        str(state_dir),
        "--port",
        "0",
        *arguments,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == code
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("length", [58, 90, 200])
def test_a_state_directory_too_long_for_sockets_is_said_with_the_limit(length: int) -> None:
    path = "/tmp/" + "x" * (length - 5)
    command = [sys.executable, "-m", "sandlot_gateway", "--state-dir", path, "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 1
    assert done.stderr.startswith(f"sandlot: state directory {path}: the path has {length} bytes")
    assert "at most 57" in done.stderr
    assert not Path(path).exists()
