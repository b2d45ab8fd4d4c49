"""Exports while code swaps what they read: each succeeds, and what it has can be restored."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import BinaryIO

import pytest
from sandlot_sidecar.layer.attributes import measure
from sandlot_sidecar.layer.errors import LayerError
from sandlot_sidecar.layer.export import Exporter
from sandlot_sidecar.layer.restore import Restorer
from sandlot_sidecar.layer.selection import EVERYTHING

from tests.sidecar.layers import INSTANCE
from tests.sidecar.support import Sidecar

# Half of the time each name of a directory is one of a link, a pipe, a file or another directory.
SWAPS = r"""
import ctypes, itertools, os
exchange = ctypes.CDLL(None).renameat2
os.makedirs("/w")
pairs = []
for number in range(8):
    place, other = f"/w/d{number}", f"/w/other{number}"
    os.makedirs(place + "/below")
    for name in ("/file", "/below/file"):
        open(place + name, "w").write("text")
        os.link(place + name, place + name + ".hard")
    make = (lambda: os.symlink("/etc", other), lambda: os.mkfifo(other), lambda: os.makedirs(other + "/below"),
            lambda: open(other, "w").write("file"))[number % 4]
    make()
    pairs.append((place.encode(), other.encode()))
assert exchange(-100, *pairs[0][:1], -100, *pairs[0][1:], 2) == 0
open("/ready", "w")
for place, other in itertools.cycle(pairs):
    for _ in range(100):
        exchange(-100, place, -100, other, 2)
"""


@pytest.mark.root
async def test_a_process_that_swaps_directories_and_links_spoils_no_export(make) -> None:
    first: Sidecar = await make(claim={})
    command = {"command": ["python3", "-c", SWAPS], "detach": True}
    answer = await first.call("POST", "/v1/ops?wait=0", json=command)
    assert answer.status_code == 202, answer.text
    await first.exec("while [ ! -e /ready ]; do sleep 0.01; done")
    for _ in range(3):
        taken = await first.client.post("/v1/checkpoint", headers=INSTANCE, json={"paths": ["/w"]})
        assert taken.status_code == 200, taken.text
    op = (await first.call("GET", f"/v1/ops/{answer.json()['op_id']}")).json()
    assert op["state"] == "running", op
    second: Sidecar = await make(claim={"restore": True})
    put = await second.client.post("/v1/restore", headers=INSTANCE, content=taken.content)
    assert put.status_code == 200, put.text
    assert (await second.exec("ls -d /w/d*"))["exit_code"] == 0


def test_a_swap_at_any_moment_spoils_no_export(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.sidecar.swapped_exports", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 500


# Until its input ends.
LEASES = """
import fcntl, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
file = open(sys.argv[1])
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print(flush=True)
sys.stdin.read()
"""


def test_a_file_that_cannot_be_opened_because_of_a_lease_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "leased").write_text("text")
    (tmp_path / "other").write_text("text")
    command = [sys.executable, "-I", "-c", LEASES, str(tmp_path / "leased")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        out = io.BytesIO()
        exported(tmp_path, out)
        process.communicate()
    with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as found:
        assert found.getnames() == ["other"]


class Changing(io.BytesIO):
    """Takes an archive, and sets the length of a file once the archive has begun."""

    def __init__(self, path: Path, size: int) -> None:
        super().__init__()
        self._path = path
        self._size = size

    def write(self, data: object, /) -> int:
        os.truncate(self._path, self._size)
        return super().write(data)  # type: ignore[arg-type]


def exported(top: Path, out: BinaryIO, *, max_bytes: int | None = None) -> None:
    fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    try:
        Exporter(out, max_bytes=max_bytes).run([fd])
    finally:
        os.close(fd)


@pytest.mark.parametrize("size", [0, 2_000_000, 9_000_000])
def test_a_file_that_shrinks_or_grows_keeps_the_length_that_it_had(tmp_path: Path, size: int) -> None:
    top, place = tmp_path / "top", tmp_path / "place"
    top.mkdir()
    place.mkdir()
    data = os.urandom(4_000_000)
    (top / "changes").write_bytes(data)
    (top / "later").write_text("later")
    out = Changing(top / "changes", size)
    exported(top, out, max_bytes=4_000_005)
    out.seek(0)
    fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    Restorer(fd, max_bytes=4_000_005).run(out)
    os.close(fd)
    found = (place / "changes").read_bytes()
    assert len(found) == len(data)
    kept = min(size, len(data)) or len(found.rstrip(b"\0"))
    assert found[:kept] == data[:kept]
    assert found[kept:] == bytes(len(data) - kept)
    assert (place / "later").read_text() == "later"


def test_files_that_grow_beyond_the_limit_before_their_turn_are_too_many(tmp_path: Path) -> None:
    (tmp_path / "first").write_bytes(os.urandom(1_000_000))
    (tmp_path / "second").touch()
    with pytest.raises(LayerError, match="grew beyond the limit") as error:
        exported(tmp_path, Changing(tmp_path / "second", 10), max_bytes=1_000_005)
    assert error.value.code == "too_large"


def test_more_entries_than_can_be_measured_in_time_are_the_files_fault(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / str(number)).touch()
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        assert measure([fd], EVERYTHING, max_entries=4) == (4, 0)
        with pytest.raises(LayerError, match="too many files") as error:
            measure([fd], EVERYTHING, max_entries=3)
    finally:
        os.close(fd)
    assert error.value.code == "too_large"
