"""With no server named, the first use starts a private stack, and later ones find it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandlot import ConfigError, _local
from sandlot._local import find_or_start, state_dir
from sandlot._sync import client as clients
from sandlot._sync.client import Client
from sandlot.endpoint import Endpoint, endpoint

from tests.sdk.conftest import assert_gone
from tests.waiting import SECONDS

pytestmark = pytest.mark.timeout(300)  # some tests run a dozen processes, one after the other

SCRIPT = """
from sandlot import Sandbox
with Sandbox.create() as box:
    print(box.exec("echo in-a-sandbox").stdout, end="")
print(box.client.endpoint().url)
"""


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state directory of the test's own, with no server named; the stack in it is ended afterwards."""
    for name in ("SANDLOT_URL", "SANDLOT_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    short = Path(tempfile.mkdtemp(prefix="sandlot-"))  # a Unix socket's path has little room
    monkeypatch.setenv("SANDLOT_HOME", str(short / "home"))
    yield short / "home"
    subprocess.run(
        [sys.executable, "-m", "sandlot", "local", "stop"], check=False, capture_output=True, timeout=SECONDS
    )
    subprocess.run(
        [sys.executable, "-m", "sandlot", "local", "clean", "--force"],
        check=False,
        capture_output=True,
        timeout=SECONDS,
    )
    shutil.rmtree(short)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: starts real sandboxes")
def test_racing_first_users_share_one_stack(home: Path) -> None:
    users = [
        subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    outputs = [user.communicate(timeout=SECONDS)[0].splitlines() for user in users]
    assert [lines[0] for lines in outputs] == ["in-a-sandbox"] * 3
    assert len({lines[1] for lines in outputs}) == 1
    document = json.loads((home / "endpoint.json").read_text())
    assert (home / "endpoint.json").stat().st_mode & 0o077 == 0
    assert document["url"] == outputs[0][1]
    assert find_or_start().url == document["url"]
    os.kill(document["pid"], signal.SIGKILL)
    again = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=SECONDS
    )
    assert again.stdout.startswith("in-a-sandbox\n")
    stop = subprocess.run(
        [sys.executable, "-m", "sandlot", "local", "stop"],
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS,
    )
    assert stop.stdout == "stopped\n"
    subprocess.run(
        [sys.executable, "-m", "sandlot", "local", "clean", "--force"], check=True, timeout=SECONDS
    )
    assert_gone(home)


def sandlot(*arguments: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "sandlot", *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS,
    ).stdout


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: starts real sandboxes")
def test_stop_ends_the_sandboxes_and_clean_takes_images(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDLOT_CACHE", str(home.parent / "cache"))
    sandlot("run", "--keep", "host", "--", "true")
    sandlot("pools", "set", "warm", "--size", "1", "--wait")
    refused = subprocess.run(
        [sys.executable, "-m", "sandlot", "local", "clean"],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert refused.returncode == 4
    assert "sandlot local stop" in refused.stderr
    assert sandlot("local", "stop") == "stopped\n"
    assert_gone(home)
    image = home.parent / "cache" / "images" / "unpacked"
    image.mkdir(parents=True, exist_ok=True)
    sandlot("local", "clean")
    assert image.exists()
    report = json.loads(sandlot("local", "clean", "--images", "--json"))
    assert str(image) in report["images"]
    assert not image.exists()


def test_a_stack_that_cannot_start_says_why(home: Path) -> None:
    home.mkdir()
    (home / "key").mkdir()  # where the gateway wants to write its key
    with pytest.raises(ConfigError, match="did not start"):
        find_or_start()


def test_a_state_directory_that_cannot_be_made_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDLOT_HOME", "/proc/none")
    with pytest.raises(ConfigError, match="/proc/none"):
        find_or_start()


def test_a_half_named_server_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="SANDLOT_URL"):
        Client(api_key="k").endpoint()
    with pytest.raises(ConfigError, match="SANDLOT_API_KEY"):
        Client(url="http://server:1").endpoint()
    with pytest.raises(ConfigError, match="URL"):
        Client(url="server:1", api_key="k").endpoint()
    with pytest.raises(ConfigError, match="blank"):
        Client(url="http://server:1", api_key="a\nb").endpoint()
    monkeypatch.setenv("SANDLOT_URL", "http://server:1/api/v1/")
    monkeypatch.setenv("SANDLOT_API_KEY", "k")
    assert Client().endpoint().url == "http://server:1"
    assert Client(url="http://other:2").endpoint().url == "http://other:2"


def test_the_key_of_the_local_stack_is_found_by_its_url(home: Path) -> None:
    home.mkdir()
    (home / "endpoint.json").write_text('{"url": "http://127.0.0.1:5", "api_key": "secret", "pid": 1}')
    found = Client(url="http://127.0.0.1:5/").endpoint()
    assert found.api_key == "secret"
    assert "secret" not in repr(found)


def test_a_stack_that_ended_while_the_program_was_idle_is_found_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.mkdir()
    clock = 1000.0
    urls = [f"http://127.0.0.1:{port}" for port in (1, 2, 3)]

    def start(*, directory: Path) -> Endpoint:
        assert directory == home
        url = urls.pop(0)
        (home / "endpoint.json").write_text(json.dumps({"url": url, "api_key": "k", "pid": 1}))
        return endpoint(url=url, api_key="k")

    monkeypatch.setattr(_local, "find_or_start", start)
    monkeypatch.setattr(_local, "gateway_pid", lambda directory: 1 if clock < 2000.0 else None)
    monkeypatch.setattr(clients, "now", lambda: clock)
    client = Client()
    assert client.endpoint().url == "http://127.0.0.1:1"
    monkeypatch.setenv("SANDLOT_HOME", "another")
    monkeypatch.setenv("SANDLOT_URL", "http://other:2")
    monkeypatch.setenv("SANDLOT_API_KEY", "k")
    clock += 10.0
    assert client.endpoint().url == "http://127.0.0.1:1"  # it runs
    (home / "endpoint.json").unlink()
    clock += 10.0
    assert client.endpoint().url == "http://127.0.0.1:2"  # it had ended: idle
    clock += 1000.0
    assert client.endpoint().url == "http://127.0.0.1:3"  # it was killed
    assert Client().endpoint().url == "http://other:2"


def test_where_state_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SANDLOT_HOME", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    expected = Path("/run") if os.geteuid() == 0 else tmp_path
    assert state_dir() == expected / "sandlot"
