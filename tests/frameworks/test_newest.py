"""Runs of newest releases take a Python that the newest needs, or tell which this machine lacks: a package index here has three."""

from __future__ import annotations

import base64
import hashlib
import html
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
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"http://127.0.0.1:{server.server_address[1]}/simple")
        monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
        yield directory / "index.html"
        server.shutdown()
        thread.join()


def test_the_newest_release_takes_the_python_that_it_needs(index: Path, tmp_path: Path) -> None:
    pythons = at_hand("3.11")
    latest = max(pythons)
    releases = {"1.0": ">=3.8", "2.0": f">={latest}", "3.0": ">=3.98,<5"}
    index.write_text("".join(wheel(index.parent, *each) for each in releases.items()))
    found = newest_runnable(PACKAGE, lowest="3.11")
    assert (str(found.release), found.python, found.interpreter) == ("2.0", latest, pythons[latest])
    home = tmp_path / "made"
    python = newest_environment(home, PACKAGE, interpreter=found.interpreter)
    assert version_in(python, PACKAGE) == "2.0"
    why = "the newest, 3.0, needs Python >=3.98"
    minor = f"{latest.major}.{latest.minor}"
    assert described(PACKAGE, "2.0", python=latest, lowest=minor) == f"{PACKAGE} 2.0 ({why})"
    assert (
        described(PACKAGE, "2.0", python=latest, lowest="3.8")
        == f"{PACKAGE} 2.0 (with Python {minor}; {why})"
    )


def test_a_release_that_is_older_than_its_python_asks_for_has_a_note(index: Path) -> None:
    index.write_text(wheel(index.parent, "1.0", ">=3.8,<3.99") + wheel(index.parent, "1.1", ">=3.11"))
    words = {"python": Version("3.11.7"), "lowest": "3.11"}
    assert described(PACKAGE, "1.1", **words) == f"{PACKAGE} 1.1"
    # Another requirement excluded it.
    assert (
        described(PACKAGE, "1.0", **words)
        == f"{PACKAGE} 1.0 (the newest, 1.1, does not go with its requirements)"
    )


def test_a_framework_that_no_python_here_runs_is_an_error_that_names_the_python(index: Path) -> None:
    index.write_text(wheel(index.parent, "3.0", ">=3.98"))
    with pytest.raises(EnvironmentFailed, match=r"the newest, 3\.0, needs Python >=3\.98") as caught:
        newest_runnable(PACKAGE, lowest="3.11")
    assert not isinstance(caught.value, IndexUnreachable)
