"""Files over the real surface: written and read whole, in ranges and in windows."""

from __future__ import annotations

import os

import pytest

from tests.sidecar.calls import no_leftover, put
from tests.sidecar.support import Sidecar
from tests.waiting import until

pytestmark = pytest.mark.root


async def test_round_trip_with_mode_and_owner(box: Sidecar) -> None:
    content = os.urandom(3_000_000)
    await put(box, "/app/deep/er/file ü+%.bin", content, mode="0750", owner="nobody", group="65534")
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


async def test_files_in_proc_have_content(box: Sidecar) -> None:
    assert "MemTotal" in (await box.call("GET", "/v1/files?path=/proc/meminfo")).text
    assert "MemTotal" in (await box.call("GET", "/v1/read-file?path=/proc/meminfo")).json()["content"]
    await put(box, "/tmp/empty", b"")
    empty = await box.call("GET", "/v1/files?path=/tmp/empty")
    assert (empty.status_code, empty.headers["content-length"], empty.content) == (200, "0", b"")


async def test_head_tells_the_size(box: Sidecar) -> None:
    await put(box, "/tmp/h", b"x" * 1000)
    answer = await box.call("HEAD", "/v1/files?path=/tmp/h")
    assert (answer.status_code, answer.headers["content-length"], answer.content) == (200, "1000", b"")
    await put(box, "/tmp/h", b"x" * 1_000_000)
    assert (await box.call("HEAD", "/v1/files?path=/tmp/h")).headers["content-length"] == "1000000"
    assert (await box.call("GET", "/v1/files?path=/tmp/h")).content == b"x" * 1_000_000
