"""Files over the real surface: streaming, ranges, windows, multipart, metadata, and paths that try to leave."""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from sandlot_sidecar.server import file_write

from tests.sidecar.support import Sidecar
from tests.waiting import until

pytestmark = pytest.mark.root


def resident(pid: int) -> int:
    """Resident bytes of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


async def put(box: Sidecar, path: str, content: bytes, **query: str) -> None:
    answer = await box.call("PUT", "/v1/files", params={"path": path, **query}, content=content)
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"path": path, "size": len(content)}


async def no_leftover(box: Sidecar, directory: str) -> bool:
    entries = (await box.call("GET", "/v1/files/list", params={"path": directory})).json()["entries"]
    return not [entry for entry in entries if ".sandlot-" in entry["path"]]


async def test_round_trip_with_mode_and_owner(box: Sidecar) -> None:
    content = os.urandom(3_000_000)
    await put(box, "/app/deep/er/file ü+%.bin", content, mode="0750", user="nobody", group="65534")
    answer = await box.call("GET", "/v1/files", params={"path": "/app/deep/er/file ü+%.bin"})
    assert answer.content == content
    assert answer.headers["x-sandlot-mode"] == "0750"
    assert float(answer.headers["x-sandlot-mtime"]) > 1e9
    stat = (await box.call("GET", "/v1/files/stat", params={"path": "/app/deep/er/file ü+%.bin"})).json()
    assert (stat["type"], stat["size"], stat["mode"], stat["uid"], stat["user"]) == (
        "file",
        3_000_000,
        "0750",
        65534,
        "nobody",
    )
    assert (await box.exec("sha256sum '/app/deep/er/file ü+%.bin' | cut -c1-64"))["exit_code"] == 0


async def test_relative_paths_begin_at_the_workdir(make) -> None:
    box = await make(claim={"workdir": "/usr/local"})
    await put_relative(box)


async def put_relative(box: Sidecar) -> None:
    answer = await box.call("PUT", "/v1/files?path=here.txt", content=b"x")
    assert answer.status_code == 200
    assert (await box.exec("cat /usr/local/here.txt"))["stdout"] == "x"


async def test_writes_are_atomic_and_keep_the_mode(box: Sidecar) -> None:
    await put(box, "/tmp/a.sh", b"#!/bin/sh\necho one\n", mode="0755")
    await put(box, "/tmp/a.sh", b"#!/bin/sh\necho two\n")
    assert (await box.exec("/tmp/a.sh"))["stdout"] == "two\n"
    missing = await box.call("PUT", "/v1/files?path=/no/such/dir/x&parents=0", content=b"x")
    assert (missing.status_code, missing.json()["error"]) == (404, "not_found")


async def test_a_broken_upload_leaves_nothing(box: Sidecar) -> None:
    await put(box, "/srv/kept", b"old")
    _, writer = await box.raw()
    writer.write(
        b"PUT /v1/files?path=/srv/kept HTTP/1.1\r\nAuthorization: Bearer %s\r\nContent-Length: 1000000\r\n\r\n"
        % box.token.encode()
        + b"x" * 5000
    )
    await until(lambda: is_written(box))
    writer.close()
    await until(lambda: no_leftover(box, "/srv"))
    assert (await box.call("GET", "/v1/files?path=/srv/kept")).content == b"old"


async def is_written(box: Sidecar) -> bool:
    return not await no_leftover(box, "/srv")


@pytest.mark.parametrize(
    ("header", "status", "expected", "content_range"),
    [
        ("bytes=0-4", 206, b"01234", "bytes 0-4/10"),
        ("bytes=5-", 206, b"56789", "bytes 5-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=8-100", 206, b"89", "bytes 8-9/10"),
        ("bytes=-100", 206, b"0123456789", "bytes 0-9/10"),
        ("bytes=10-", 416, None, "bytes */10"),
        ("bytes=-0", 416, None, "bytes */10"),
        ("bytes=5-2", 200, b"0123456789", None),
        ("bytes=0-1,3-4", 200, b"0123456789", None),
        ("lines=1-2", 200, b"0123456789", None),
    ],
)
async def test_ranges(
    box: Sidecar, header: str, status: int, expected: bytes | None, content_range: str | None
) -> None:
    await put(box, "/tmp/digits", b"0123456789")
    for route in ("files", "download"):
        answer = await box.call("GET", f"/v1/{route}?path=/tmp/digits", headers={"Range": header})
        assert answer.status_code == status
        assert answer.headers.get("content-range") == content_range
        if expected is not None:
            assert answer.content == expected


@pytest.mark.parametrize(
    ("query", "content", "offset", "truncated"),
    [
        ("", "0123456789", 0, False),
        ("&offset=4", "456789", 4, False),
        ("&offset=-3", "789", 7, False),
        ("&offset=-30&length=30", "0123456789", 0, False),
        ("&offset=2&length=3", "234", 2, True),
        ("&offset=20", "", 10, False),
        ("&length=0", "", 0, True),
    ],
)
async def test_read_file_windows(
    box: Sidecar, query: str, content: str, offset: int, truncated: bool
) -> None:
    await put(box, "/tmp/digits", b"0123456789")
    answer = (await box.call("GET", f"/v1/read-file?path=/tmp/digits{query}")).json()
    assert answer == {
        "content": content, "size": len(content), "total_size": 10, "offset": offset, "truncated": truncated,
    }  # fmt: skip


async def test_read_file_refuses_what_is_too_large_without_a_window(box: Sidecar) -> None:
    await box.exec("head -c 11000000 /dev/zero | tr '\\0' a > /tmp/big; echo -n end >> /tmp/big")
    answer = await box.call("GET", "/v1/read-file?path=/tmp/big")
    assert (answer.status_code, answer.json()["error"]) == (413, "too_large")
    tail = (await box.call("GET", "/v1/read-file?path=/tmp/big&offset=-10485760&length=10485760")).json()
    assert tail["size"] == 10485760
    assert tail["content"].endswith("aend")
    assert (await box.call("GET", "/v1/read-file?path=/no/such")).status_code == 404
    await box.call(
        "POST", "/v1/upload?path=/tmp/binary", files={"file": ("b", b"\x7fELF\xff\xfe\x00 and more")}
    )
    binary = (await box.call("GET", "/v1/read-file?path=/tmp/binary&length=7")).json()
    assert (binary["content"], binary["size"]) == ("\x7fELF\ufffd\ufffd\x00", 7)


async def test_primes_upload(box: Sidecar) -> None:
    content = os.urandom(1_500_000)
    files = {"other": ("o.bin", b"not this"), "file": ("f.bin", content)}
    answer = await box.call("POST", "/v1/upload?path=/made/here.bin&sandbox_id=x", files=files)
    document = answer.json()
    assert (document["success"], document["path"], document["size"]) == (True, "/made/here.bin", len(content))
    assert "T" in document["timestamp"]
    assert (await box.call("GET", "/v1/download?path=/made/here.bin")).content == content
    without = await box.call("POST", "/v1/upload?path=/made/no", files={"other": ("o", b"x")})
    assert (without.status_code, without.json()["field"]) == (400, "file")
    plain = await box.call("POST", "/v1/upload?path=/made/no", content=b"x")
    assert plain.status_code == 400
    assert (await box.call("GET", "/v1/files/stat?path=/made/no")).status_code == 404
    assert await no_leftover(box, "/made")


async def test_list_in_pages(box: Sidecar) -> None:
    await box.exec("mkdir /d; cd /d; touch c a b; mkdir e; ln -s /nowhere f")
    listing = (await box.call("GET", "/v1/files/list?path=/d&limit=3")).json()
    assert [entry["path"] for entry in listing["entries"]] == ["/d/a", "/d/b", "/d/c"]
    rest = (
        await box.call("GET", "/v1/files/list", params={"path": "/d", "cursor": listing["cursor"]})
    ).json()
    assert [(entry["path"], entry["type"]) for entry in rest["entries"]] == [
        ("/d/e", "dir"),
        ("/d/f", "symlink"),
    ]
    assert rest["entries"][1]["target"] == "/nowhere"
    assert rest["cursor"] is None


async def test_a_directory_of_long_names_and_targets_is_listed_in_pages(box: Sidecar) -> None:
    make = "import os\nos.mkdir(b'/d')\nfor i in range(500): os.symlink(b't' * 4000, b'/d/\\xff%04d' % i + b'\\xff' * 200)"
    assert (await box.exec(["python3", "-c", make]))["exit_code"] == 0
    names: list[str] = []
    cursor = pages = 0
    while cursor is not None:
        query = "" if not pages else "&cursor=" + quote(os.fsencode(str(cursor)))
        listing = (await box.call("GET", f"/v1/files/list?path=/d{query}")).json()
        names += [entry["path"][4:8] for entry in listing["entries"]]
        cursor = listing["cursor"]
        pages += 1
    assert names == [f"{number:04}" for number in range(500)]
    assert pages == 3


async def test_make_move_chmod_delete(box: Sidecar) -> None:
    made = await box.call("POST", "/v1/files/mkdir", json={"path": "/m/n", "mode": "0700", "user": "nobody"})
    assert (made.json()["mode"], made.json()["uid"]) == ("0700", 65534)
    await put(box, "/m/n/x", b"x")
    await put(box, "/m/n/y", b"y")
    taken = await box.call(
        "POST", "/v1/files/move", json={"source": "/m/n/x", "target": "/m/n/y", "overwrite": False}
    )
    assert (taken.status_code, taken.json()["error"]) == (409, "exists")
    assert (
        await box.call("POST", "/v1/files/move", json={"source": "/m/n/x", "target": "/m/n/y"})
    ).status_code == 200
    assert (await box.call("GET", "/v1/files?path=/m/n/y")).content == b"x"
    changed = await box.call(
        "POST", "/v1/files/chmod", json={"path": "/m/n/y", "mode": "0600", "user": 5, "group": 6}
    )
    assert (changed.json()["mode"], changed.json()["uid"], changed.json()["gid"]) == ("0600", 5, 6)
    full = await box.call("DELETE", "/v1/files?path=/m")
    assert (full.status_code, full.json()["error"]) == (409, "not_empty")
    assert (await box.call("DELETE", "/v1/files?path=/m&recursive=1")).status_code == 200
    assert (await box.call("DELETE", "/v1/files?path=/m")).status_code == 404


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


async def test_a_full_disk_is_507_and_the_sandbox_stays_usable(box: Sidecar) -> None:
    async def zeros() -> AsyncIterator[bytes]:
        for _ in range(200):
            yield bytes(1 << 20)

    answer = await box.call("PUT", "/v1/files?path=/fill", content=zeros())
    assert (answer.status_code, answer.json()["error"]) == (507, "disk_full")
    await until(lambda: no_leftover(box, "/"))
    assert (await box.exec("echo works > /tmp/x && cat /tmp/x"))["stdout"] == "works\n"


@pytest.mark.parametrize(
    ("number", "status", "code"),
    [
        (errno.ENOSPC, 507, "disk_full"), (errno.EDQUOT, 507, "disk_full"), (errno.EFBIG, 413, "too_large"),
        (errno.ENOTDIR, 409, "not_a_directory"), (errno.ELOOP, 400, "bad_request"),
        (errno.ETXTBSY, 403, "permission"), (errno.EROFS, 403, "permission"), (errno.EPERM, 403, "permission"),
        (errno.EACCES, 403, "permission"), (errno.EIO, 503, "io_error"), (errno.ENOMEM, 503, "io_error"),
    ],
)  # fmt: skip
def test_a_write_that_code_can_make_fail_is_no_failure_of_the_infrastructure(
    number: int, status: int, code: str
) -> None:
    error = file_write._disk_error(OSError(number, os.strerror(number)), "/f")
    assert (error.status, error.code) == (status, code)


async def test_large_files_stream_with_flat_memory(make) -> None:
    """A gigabyte each way; the memory does not know the size, so 5 GB are the same."""
    size = 1 << 30
    box = await make(root={"disk": 3 << 30}, limits={"memory": 3 << 30, "pids": 100}, claim={})
    await put(box, "/warm", b"x" * 1_000_000)
    before = resident(box.pid)
    peak = before
    block = bytes(1 << 20)

    async def zeros() -> AsyncIterator[bytes]:
        nonlocal peak
        for number in range(size >> 20):
            if number % 64 == 0:
                peak = max(peak, resident(box.pid))
            yield block

    answer = await box.call("PUT", "/v1/files?path=/large", content=zeros())
    assert answer.json()["size"] == size
    received = 0
    async with box.stream("GET", "/v1/files?path=/large") as download:
        async for part in download.aiter_raw(1 << 20):
            received += len(part)
            if received % (64 << 20) == 0:
                peak = max(peak, resident(box.pid))
    assert received == size
    assert peak - before < 8 << 20
    quick = await asyncio.wait_for(box.exec("echo alive"), 10)
    assert quick["stdout"] == "alive\n"


async def test_a_client_that_leaves_a_download_leaks_nothing(box: Sidecar) -> None:
    await box.exec("head -c 20000000 /dev/zero > /tmp/z")
    before = box.descriptors()
    for _ in range(5):
        async with box.stream("GET", "/v1/files?path=/tmp/z") as download:
            async for _part in download.aiter_raw():
                break
    await box.reconnect()
    await box.exec("true")
    await until(lambda: few_descriptors(box, before))


async def few_descriptors(box: Sidecar, before: tuple[int, int]) -> bool:
    return box.descriptors()[0] <= before[0]


async def test_files_in_proc_have_content(box: Sidecar) -> None:
    assert "MemTotal" in (await box.call("GET", "/v1/files?path=/proc/meminfo")).text
    assert "MemTotal" in (await box.call("GET", "/v1/read-file?path=/proc/meminfo")).json()["content"]
    await put(box, "/tmp/empty", b"")
    empty = await box.call("GET", "/v1/files?path=/tmp/empty")
    assert (empty.status_code, empty.headers["content-length"], empty.content) == (200, "0", b"")


@pytest.mark.parametrize("route", ["/v1/files", "/v1/download", "/v1/read-file"])
async def test_what_cannot_be_read_is_the_caller_s_fault(box: Sidecar, route: str) -> None:
    await box.op(["sleep", "600"], id="sleeper", detach=True)
    await box.exec("until p=$(pgrep -xf 'sleep 600'); do sleep 0.01; done; ln -s /proc/$p/mem /tmp/x")
    answer = await box.call("GET", f"{route}?path=/tmp/x")
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_request"), answer.text
    assert (await box.exec("echo still here"))["stdout"] == "still here\n"


async def test_head_tells_the_size(box: Sidecar) -> None:
    await put(box, "/tmp/h", b"x" * 1000)
    answer = await box.call("HEAD", "/v1/files?path=/tmp/h")
    assert (answer.status_code, answer.headers["content-length"], answer.content) == (200, "1000", b"")
    await put(box, "/tmp/h", b"x" * 1_000_000)
    assert (await box.call("HEAD", "/v1/files?path=/tmp/h")).headers["content-length"] == "1000000"
    assert (await box.call("GET", "/v1/files?path=/tmp/h")).content == b"x" * 1_000_000
