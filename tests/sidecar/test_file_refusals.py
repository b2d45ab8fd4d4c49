"""Requests for files that are refused: wrong fields, the wrong kind of path, and paths that lead out of the sandbox."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sidecar.support import Sidecar

pytestmark = pytest.mark.root


@pytest.mark.parametrize(
    ("method", "path", "status", "error"),
    [
        ("GET", "/v1/files?path=/tmp", 409, "is_directory"),
        ("PUT", "/v1/files?path=/tmp", 409, "is_directory"),
        # Prime's routes: its clients ask again after a 409.
        ("GET", "/v1/download?path=/tmp", 400, "is_directory"),
        ("GET", "/v1/read-file?path=/tmp", 400, "is_directory"),
        ("GET", "/v1/download?path=/etc/passwd/x", 400, "not_a_directory"),
        ("GET", "/v1/download?path=/nothing", 404, "not_found"),
        ("GET", "/v1/files?path=/etc/passwd/x", 409, "not_a_directory"),
        ("GET", "/v1/files/list?path=/etc/passwd", 409, "not_a_directory"),
        ("GET", "/v1/files?path=/nothing", 404, "not_found"),
        ("GET", "/v1/files?path=/dev/zero", 403, "permission"),
    ],
)
async def test_errors(box: Sidecar, method: str, path: str, status: int, error: str) -> None:
    answer = await box.call(method, path)
    assert (answer.status_code, answer.json()["error"]) == (status, error)


@pytest.mark.parametrize(
    ("method", "path", "field"),
    [
        ("GET", "/v1/files", "path"),
        ("GET", "/v1/files?path=/x&user=none-such", "user"),
        ("GET", "/v1/files?path=/etc/passwd&user=", "user"),
        ("PUT", "/v1/files?path=/x&owner=none-such", "owner"),
        ("PUT", "/v1/files?path=/x&mode=9", "mode"),
        ("PUT", "/v1/files?path=/x&parents=2", "parents"),
        ("GET", "/v1/files/list?path=/&limit=0", "limit"),
        ("GET", "/v1/read-file?path=/x&offset=a", "offset"),
        ("GET", "/v1/files?path=%00", "path"),
        ("DELETE", "/v1/files?path=/x&recursive=maybe", "recursive"),
    ],
)
async def test_bad_input_names_the_field(box: Sidecar, method: str, path: str, field: str) -> None:
    answer = await box.call(method, path)
    assert (answer.status_code, answer.json()["field"]) == (400, field), answer.text


@pytest.mark.parametrize("path", ["/tmp/new/", "/tmp/new/.", "/tmp/new/..", "new/", "/tmp/", "/"])
async def test_a_file_is_not_written_beside_the_directory_that_was_named(box: Sidecar, path: str) -> None:
    await box.exec("touch /tmp/before; ls -a /tmp > /tmp/before")
    put = await box.call("PUT", "/v1/files", params={"path": path}, content=b"x")
    uploaded = await box.call("POST", "/v1/upload", params={"path": path}, files={"file": b"x"})
    for answer in (put, uploaded):
        assert (answer.status_code, answer.json()["field"]) == (400, "path"), answer.text
        assert "names a directory" in answer.json()["message"]
    assert (await box.exec("ls -a /tmp | diff - /tmp/before"))["exit_code"] == 0


async def test_an_upload_over_a_directory_is_refused_once(box: Sidecar) -> None:
    answer = await box.call("POST", "/v1/upload?path=/tmp", files={"file": b"x"})
    assert (answer.status_code, answer.json()["error"]) == (400, "is_directory")
    assert "/tmp is a directory" in answer.json()["message"]


@pytest.fixture
def outside() -> Iterator[Path]:
    """A file of the machine that no sandbox may reach."""
    with tempfile.NamedTemporaryFile(prefix="sandlot-outside-", dir="/tmp") as file:
        path = Path(file.name)
        path.write_text("host")
        yield path
        assert path.read_text() == "host"


async def test_no_path_leads_out(make, outside: Path) -> None:
    box = await make(root={"mask": ["/tmp"]}, claim={})
    await box.exec("ln -s / /up; ln -s ../../../../../../tmp /rel; ln -s /proc/1/root/tmp /viaproc")
    for directory in (
        "/../../../../tmp",
        "/up/tmp",
        "/rel",
        "/proc/self/root/tmp",
        "/proc/1/root/tmp",
        "/viaproc",
    ):
        path = f"{directory}/{outside.name}"
        answer = await box.call("GET", "/v1/files", params={"path": path})
        assert answer.status_code in (403, 404), (path, answer.text)
        await box.call("PUT", "/v1/files", params={"path": path}, content=b"owned")
        await box.call("DELETE", "/v1/files", params={"path": path})


@pytest.mark.parametrize("route", ["/v1/files", "/v1/download", "/v1/read-file"])
async def test_what_cannot_be_read_is_the_caller_s_fault(box: Sidecar, route: str) -> None:
    await box.op(["sleep", "600"], id="sleeper", detach=True)
    await box.exec("until p=$(pgrep -xf 'sleep 600'); do sleep 0.01; done; ln -s /proc/$p/mem /tmp/x")
    answer = await box.call("GET", f"{route}?path=/tmp/x")
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_path"), answer.text
    assert (await box.exec("echo still here"))["stdout"] == "still here\n"
