"""Copies of a sandbox's files that others mount: the same files as by an archive, one copy for all, nothing left of it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.roots import make_root
from tests.sidecar.layers import INSTANCE, export, restore, run
from tests.sidecar.support import Sidecar
from tests.sidecar.test_checkpoint import CHANGES, LOOK
from tests.sidecar.test_checkpoint_races import SWAPS
from tests.waiting import until

pytestmark = pytest.mark.root

# Over a copy of CHANGES: of each kind of file one that was in the copy, and one that it hides in the image.
MORE = r"""
set -e
rm /app/second; printf two > /app/deep/file; mv /app/tool /app/moved; chmod 700 /app/closed
rm -r /usr/share/doc; printf again > /etc/passwd-
rm /etc/default; mkdir /etc/default; touch /etc/default/own
rm -r /app/deep; mkdir /app/deep; cp /app/sparse /app/deep/other
"""
LIST = r"""
cd /; find app etc/default etc/passwd- usr/share/doc -type d -printf '%p %y %m %U %G\n' -o -printf '%p %y %m %U %G %s %n %l\n' |
sort
find /app -type f -exec md5sum {} + | sort; cat /etc/passwd-
"""

ROOM = 64 << 20
Keep = Callable[[dict[str, Any]], dict[str, Any]]


@pytest.fixture
def keep() -> Iterator[Keep]:
    """Hold a copy as a gateway does; return the document for a restore."""
    held: list[int] = []

    def hold(told: dict[str, Any]) -> dict[str, Any]:
        held.append(os.open(told["namespace"], os.O_RDONLY))
        return {**told, "namespace": f"/proc/{os.getpid()}/fd/{held[-1]}"}

    yield hold
    for fd in held:
        os.close(fd)


async def shared(box: Sidecar) -> dict[str, Any]:
    measured = await box.instance("GET", "/v1/share")
    assert measured.status_code == 200, measured.text
    return await offered(box, **measured.json())


async def offered(box: Sidecar, **measured: int) -> dict[str, Any]:
    answer = await post(box, **measured)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def post(box: Sidecar, **measured: int) -> httpx.Response:
    query = {"max_bytes": measured["bytes"] + ROOM, "entries": measured["entries"]}
    return await box.client.post("/v1/share", params=query, headers=INSTANCE)


async def with_copy(make: Any, told: dict[str, Any], **claim: object) -> Sidecar:
    box: Sidecar = await make(claim={"restore": True, **claim})
    put = await box.client.post("/v1/restore", headers=INSTANCE, json=told)
    assert put.status_code == 200, put.text
    return box


def holders(inode: int) -> list[str]:
    """The processes with a descriptor of a mount namespace."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has ended
            found += [pid for fd in os.listdir(f"/proc/{pid}/fd") if _target(pid, fd) == f"mnt:[{inode}]"]
    return found


def _target(pid: str, fd: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/fd/{fd}")
    except OSError:  # closed meanwhile
        return ""


async def test_the_same_files_by_a_copy_and_by_an_archive(make, keep: Keep) -> None:
    first: Sidecar = await make(claim={})
    await run(first, CHANGES.replace("ln /app/deep/file", "cp /app/deep/file"))  # links: see below
    before = (await first.exec(LOOK))["stdout"]
    second = await with_copy(make, keep(await shared(first)))
    assert (await second.exec(LOOK))["stdout"] == before
    await run(second, MORE)
    listed = await run(second, LIST)
    assert "etc/default/own f" in listed
    of_fork = await with_copy(make, keep(await shared(second)))
    assert await run(of_fork, LIST) == listed
    by_archive: Sidecar = await make(claim={"restore": True})
    assert (await restore(by_archive, (await export(second)).content)).status_code == 200
    assert await run(by_archive, LIST) == listed
    assert (await first.exec(LOOK))["stdout"] == before


async def test_one_copy_is_for_all_and_goes_with_the_last(make, keep: Keep) -> None:
    first: Sidecar = await make(claim={})
    await run(first, "head -c 8000000 /dev/urandom > /big")
    told = keep(await shared(first))
    assert (await first.instance("DELETE", "/v1/share")).status_code == 200
    await until(lambda: holders(told["inode"]) == [str(os.getpid())])
    start = "stat -c %s /big > /seen"
    boxes = [await with_copy(make, told, start_command=start) for _ in range(2)]
    assert int(await run(boxes[0], "df --output=used -k / | tail -1")) < 2000
    await run(boxes[0], "while [ ! -s /seen ]; do sleep 0.02; done; echo more >> /big")
    sizes = [await run(box, "stat -c %s /big") for box in (*boxes, first)]
    assert sizes == ["8000005\n", "8000000\n", "8000000\n"]
    refused = await boxes[0].instance("POST", "/v1/reset", json={"keep_claim": False})
    assert (refused.status_code, refused.json()["error"]) == (409, "unsupported")
    for box in boxes:
        await box.instance("POST", "/v1/end", json={"verdict": "deleted"})
        assert box.process is not None
        await box.process.wait()
    await until(lambda: holders(told["inode"]) == [str(os.getpid())])


async def test_a_process_that_swaps_what_is_copied_gets_nothing_else_copied(make, keep: Keep) -> None:
    first: Sidecar = await make(claim={})
    swaps = SWAPS.replace("os.link(place + name, ", "(print)(place, ")  # links are no copy's
    command = {"command": ["python3", "-c", swaps], "detach": True}
    answer = await first.call("POST", "/v1/ops?wait=0", json=command)
    assert answer.status_code == 202, answer.text
    await first.exec("while [ ! -e /ready ]; do sleep 0.01; done")
    for _ in range(4):
        await shared(first)
    told = await shared(first)
    assert (await first.call("GET", f"/v1/ops/{answer.json()['op_id']}")).json()["state"] == "running"
    second = await with_copy(make, keep(told))
    assert set((await run(second, r"find /w -type f -exec sh -c 'cat $1; echo' - {} \;")).split()) <= {
        "text",
        "file",
    }


async def test_too_much_is_refused_and_costs_nothing(make) -> None:
    box: Sidecar = await make(claim={})
    await run(box, "truncate -s 1T /sparse")
    refused = await box.client.get("/v1/share", params={"max_bytes": 1 << 30}, headers=INSTANCE)
    assert (refused.status_code, refused.json()["error"]) == (413, "too_large")
    await run(box, "rm /sparse; head -c 20000000 /dev/urandom > /file")
    large = await post(box, bytes=-ROOM + 10_000_000, entries=1)  # an archive has room for it
    assert (large.status_code, large.json()["error"]) == (503, "no_room")
    for method in ("GET", "POST"):
        assert (await box.call(method, "/v1/share")).status_code == 401  # by the sandbox's token
    for query, field in (({"entries": 1}, "max_bytes"), ({"max_bytes": 1}, "entries")):
        answer = await box.client.post("/v1/share", params=query, headers=INSTANCE)
        assert (answer.status_code, answer.json()["field"]) == (400, field)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"namespace": "/etc/passwd"}, 400),
        ({"namespace": "/proc/\ud800"}, 400),
        ({"inode": 1}, 409),
        ({"namespace": "/proc/self/fd/999"}, 409),
    ],
    ids=["no path of a process", "no path", "another one", "closed"],
)
async def test_what_is_no_copy_ends_the_sandbox(
    make, keep: Keep, change: dict[str, Any], status: int
) -> None:
    first: Sidecar = await make(claim={})
    told = keep(await shared(first))
    box: Sidecar = await make(claim={"restore": True})
    put = await box.client.post("/v1/restore", headers=INSTANCE, content=json.dumps({**told, **change}))
    assert put.status_code == status, put.text
    assert "namespace" in put.json()["field"]
    assert (await box.webhooks.wait("ended"))["verdict"] == "start_failed"


async def test_a_namespace_of_another_kind_ends_the_sandbox(make) -> None:
    fd = os.open("/proc/self/ns/net", os.O_RDONLY)
    try:
        info = os.fstat(fd)
        told = {
            "namespace": f"/proc/{os.getpid()}/fd/{fd}",
            "device": info.st_dev,
            "inode": info.st_ino,
        }
        box: Sidecar = await make(claim={"restore": True})
        put = await box.client.post("/v1/restore", headers=INSTANCE, json=told)
        assert put.status_code == 400, put.text
        assert os.strerror(errno.EINVAL) in put.json()["message"]
    finally:
        os.close(fd)


async def test_links_take_the_way_of_an_archive(make) -> None:
    """Above a lower layer, a write to one name would not show in the other."""
    box: Sidecar = await make(claim={})
    await run(box, "echo one > /a; ln -s a /s; mkfifo /p")
    measured = (await box.instance("GET", "/v1/share")).json()
    for link in ("/a", "/p", "-P /s"):
        await run(box, f"ln {link} /b")
        for refused in (await box.instance("GET", "/v1/share"), await post(box, **measured)):
            assert (refused.status_code, refused.json()["error"]) == (409, "unsupported"), link
            assert "hard links" in refused.json()["message"]
        await run(box, "rm /b")
    await shared(box)


async def test_a_directory_of_the_copy_is_moved_by_a_copy_of_it(make, keep: Keep) -> None:
    """As one of the image is; by an archive it would be the sandbox's own. A checkpoint can read what comes of it."""
    first: Sidecar = await make(claim={})
    await run(first, "mkdir -p /app/d; echo in > /app/d/file; mkdir /app/own")
    rename = 'python3 -c \'import os; os.rename("/app/d", "/app/e")\' 2>&1 | tail -1; ls /app'
    by_copy = await with_copy(make, keep(await shared(first)))
    by_archive: Sidecar = await make(claim={"restore": True})
    assert (await restore(by_archive, (await export(first)).content)).status_code == 200
    assert await run(by_archive, rename) == "e\nown\n"
    assert (await run(by_copy, rename)).startswith(f"OSError: [Errno {errno.EXDEV}]")
    await run(by_copy, "mv /app/d /app/e")
    again: Sidecar = await make(claim={"restore": True})
    assert (await restore(again, (await export(by_copy)).content)).status_code == 200
    for box in (by_copy, again):
        assert await run(box, "ls /app; cat /app/e/file") == "e\nown\nin\n"


async def test_an_offer_ends_with_the_next_one(make) -> None:
    box: Sidecar = await make(claim={})
    assert box.process is not None
    descriptors = f"/proc/{box.process.pid}/fd"

    def offers() -> int:
        pids = [str(box.process.pid)] if box.process else []
        found = [_target(pid, fd) for pid in pids for fd in os.listdir(descriptors)]
        return sum(name.startswith("mnt:") for name in found)

    without = offers()
    for _ in range(2):
        await shared(box)

        async def is_one() -> bool:
            return offers() == without + 1

        await until(is_one)


async def test_the_directories_of_an_image_are_those_of_its_claim(make, keep: Keep, tmp_path: Path) -> None:
    for name in ("one", "two"):
        make_root(tmp_path, name)
    rootfs = tmp_path / "one/rootfs"
    image = {"id": "sha256:one", "lower": [str(rootfs)]}
    root = {"id": "host", "images": str(tmp_path), "host": True}
    first: Sidecar = await make(root=root, claim={"image": image})
    await run(first, "echo new > /new")
    told = keep(await shared(first))
    fork: Sidecar = await make(root=root, claim={"image": image, "restore": True})
    rootfs.rename(tmp_path / "one/earlier")
    (tmp_path / "two/rootfs").rename(rootfs)
    put = await fork.client.post("/v1/restore", headers=INSTANCE, json=told)
    assert put.status_code == 200, put.text
    assert await run(fork, "cat /etc/which /new") == "one\nnew\n"
