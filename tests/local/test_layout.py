"""The state directory: private, named in errors, and short enough for its sockets."""

from __future__ import annotations

import secrets
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandlot_gateway.backends.local.layout import Layout
from sandlot_gateway.core.backend import BackendError


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory whose path leaves room for sockets."""
    directory = Path(tempfile.mkdtemp(prefix="sandlot-"))
    yield directory
    shutil.rmtree(directory)


def test_directories_are_private_and_foreign_names_are_no_instances(short: Path) -> None:
    layout = Layout(short / "s", short / "c")
    layout.make()
    layout.make()
    for path in (layout.state_dir, layout.instances, layout.cache_dir):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for name in ("i-0123456789abcdef", "i-short", "i-0123456789ABCDEF", "other"):
        (layout.instances / name).mkdir(exist_ok=True)
    assert [directory.id for directory in layout.instance_dirs()] == ["i-0123456789abcdef"]


def test_the_longest_allowed_path_has_room_for_a_socket(tmp_path: Path) -> None:
    base = Path("/tmp")
    longest = base / secrets.token_hex(57)[: 57 - len(str(base)) - 1]
    too_long = Path(f"{longest}x")
    with pytest.raises(BackendError, match="too long") as caught:
        Layout(too_long, tmp_path).make()
    assert caught.value.field == "state_dir"
    assert not too_long.exists()
    layout = Layout(longest, tmp_path)
    try:
        layout.make()
        directory = layout.instance("i-0123456789abcdef")
        directory.path.mkdir()
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"{directory.socket}.4194304")
    finally:
        shutil.rmtree(longest, ignore_errors=True)


def test_a_path_that_is_a_file_is_a_clear_error(short: Path) -> None:
    (short / "file").write_text("")
    with pytest.raises(BackendError, match="cannot make"):
        Layout(short / "file", short / "c").make()
