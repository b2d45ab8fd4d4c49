"""Runs of newest releases take a Python that the newest needs, or tell which this machine lacks: a package index here has three."""

from __future__ import annotations

import base64
import hashlib
import html
import os
import sys
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from packaging.version import Version

from tests.frameworks.newest import described, newest_runnable
from tests.prime.environments import (
    THIS,
    EnvironmentFailed,
    IndexUnreachable,
    at_hand,
    newest_environment,
    version_in,
)

PACKAGE = "sandlot-three-releases"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Keep the test's output free of requests."""


def wheel(directory: Path, release: str, pythons: str) -> str:
    """Make a wheel without modules; return its line of the index."""
    name = f"{PACKAGE.replace('-', '_')}-{release}"
    metadata = f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: {release}\nRequires-Python: {pythons}\n"
    files = {
        "METADATA": metadata,
        "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    file = directory / f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for each, text in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
            record += f"{name}.dist-info/{each},sha256={digest},{len(text)}\n"
            archive.writestr(f"{name}.dist-info/{each}", text)
        archive.writestr(f"{name}.dist-info/RECORD", f"{record}{name}.dist-info/RECORD,,\n")
    escaped = html.escape(pythons)
    return f'<a href="{file.name}" data-requires-python="{escaped}">{file.name}</a>\n'


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The page of the package on an index that uv asks."""
    directory = tmp_path / "simple" / PACKAGE
    directory.mkdir(parents=True)
    handler = partial(Quiet, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        # Nothing of the machine's settings, such as another index, a proxy or `offline`.
        for name in [name for name in os.environ if name.startswith("UV_")]:
            monkeypatch.delenv(name)
        settings = {
            "UV_NO_CONFIG": "1",
            "UV_DEFAULT_INDEX": f"http://127.0.0.1:{server.server_address[1]}/simple",
            "UV_CACHE_DIR": str(tmp_path / "uv"),
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        yield directory / "index.html"
        server.shutdown()
        thread.join()


def program(file: Path, script: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


@pytest.fixture
def pythons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[Version, Path]:
    """Those that runs of newest releases have: this one, before it one that tells uv that it is 3.10, after it a copy."""
    older = "; ".join(
        f's/"python_{name}": *"[^"]*"/"python_{name}": "{value}"/'
        for name, value in {"full_version": "3.10.9", "version": "3.10"}.items()
    )
    made = {
        Version("3.10.9"): program(tmp_path / "older", f"'{sys.executable}' \"$@\" | sed '{older}'"),
        THIS: Path(sys.executable),
        Version("3.98"): program(tmp_path / "copy", f"exec '{sys.executable}' \"$@\""),
    }
    monkeypatch.setattr("tests.frameworks.newest.at_hand", lambda lowest: made)
    return made


@pytest.mark.usefixtures("pythons")
def test_the_newest_release_takes_the_python_that_it_needs(index: Path, tmp_path: Path) -> None:
    releases = {"1.0": ">=3.8", "2.0": f">={THIS}", "3.0": ">=3.98,<5"}
    index.write_text("".join(wheel(index.parent, *each) for each in releases.items()))
    found = newest_runnable(PACKAGE, lowest="3.10")
    assert (str(found.release), found.python, found.interpreter) == ("2.0", THIS, Path(sys.executable))
    home = tmp_path / "made"
    python = newest_environment(home, PACKAGE, interpreter=found.interpreter)
    assert version_in(python, PACKAGE) == "2.0"
    why = "the newest, 3.0, needs Python >=3.98"
    minor = f"{THIS.major}.{THIS.minor}"
    assert described(PACKAGE, "2.0", python=THIS, lowest=minor) == f"{PACKAGE} 2.0 ({why})"
    assert (
        described(PACKAGE, "2.0", python=THIS, lowest="3.8") == f"{PACKAGE} 2.0 (with Python {minor}; {why})"
    )


def test_a_release_that_is_older_than_its_python_asks_for_has_a_note(index: Path) -> None:
    index.write_text(wheel(index.parent, "1.0", ">=3.8,<3.99") + wheel(index.parent, "1.1", ">=3.11"))
    words = {"python": Version("3.11.7"), "lowest": "3.11"}
    assert described(PACKAGE, "1.1", **words) == f"{PACKAGE} 1.1"
    # The tests' Python is a later one, which the release does not need.
    assert described(PACKAGE, "1.1", python=Version("3.13.1"), lowest="3.11") == f"{PACKAGE} 1.1"
    # Another requirement excluded it.
    assert (
        described(PACKAGE, "1.0", **words)
        == f"{PACKAGE} 1.0 (the newest, 1.1, does not go with its requirements)"
    )


@pytest.mark.usefixtures("pythons")
def test_a_framework_that_no_python_here_runs_is_an_error_that_names_the_python(index: Path) -> None:
    index.write_text(wheel(index.parent, "3.0", ">=3.98"))
    with pytest.raises(EnvironmentFailed, match=r"the newest, 3\.0, needs Python >=3\.98") as caught:
        newest_runnable(PACKAGE, lowest="3.11")
    assert not isinstance(caught.value, IndexUnreachable)


def test_a_python_of_pyenv_that_does_not_run_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = tmp_path / "versions"
    program(versions / "3.97.1/bin/python", "exit 127")
    alias = program(versions / "3.98/bin/python", "echo 3.98.5")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert at_hand("3.90") == {Version("3.98.5"): alias}
