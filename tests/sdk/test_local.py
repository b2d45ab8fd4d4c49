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
from sandlot import ConfigError
from sandlot._local import find_or_start, state_dir
from sandlot.config import find_endpoint

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
        find_endpoint(api_key="k")
    with pytest.raises(ConfigError, match="SANDLOT_API_KEY"):
        find_endpoint(url="http://server:1")
    with pytest.raises(ConfigError, match="URL"):
        find_endpoint(url="server:1", api_key="k")
    with pytest.raises(ConfigError, match="blank"):
        find_endpoint(url="http://server:1", api_key="a\nb")
    monkeypatch.setenv("SANDLOT_URL", "http://server:1/api/v1/")
    monkeypatch.setenv("SANDLOT_API_KEY", "k")
    assert find_endpoint().url == "http://server:1"
    assert find_endpoint(url="http://other:2").url == "http://other:2"


def test_the_key_of_the_local_stack_is_found_by_its_url(home: Path) -> None:
    home.mkdir()
    (home / "endpoint.json").write_text('{"url": "http://127.0.0.1:5", "api_key": "secret", "pid": 1}')
    found = find_endpoint(url="http://127.0.0.1:5/")
    assert found.api_key == "secret"
    assert "secret" not in repr(found)


def test_where_state_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SANDLOT_HOME", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    expected = Path("/run") if os.geteuid() == 0 else tmp_path
    assert state_dir() == expected / "sandlot"
