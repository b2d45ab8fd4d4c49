"""The archive of a sandbox's layer over the real surface: what it keeps, where it may go, what it cannot do."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sidecar.layers import INSTANCE, archive, export, member, restore, run, with_records
from tests.sidecar.processes import resident
from tests.sidecar.support import Sidecar
from tests.waiting import until

pytestmark = pytest.mark.root

CHANGES = r"""
set -e
umask 022
mkdir -p /app/deep /app/closed
printf one > /app/deep/file && touch -d @1500000000.25 /app/deep/file
printf '#!/bin/sh\necho ran\n' > /app/tool && chmod 4755 /app/tool
ln -s ../etc/passwd /app/link && ln /app/deep/file /app/second
mkfifo -m 600 /app/pipe
touch "/app/$(printf 'latin\351')" '/app/ü % ='
truncate -s 3M /app/sparse && printf end >> /app/sparse
chown 1000:1001 /app/deep && chmod 0711 /app/deep && chmod 0500 /app/closed
touch -d @1400000000 /app/closed
rm -r /usr/share/doc && mkdir /usr/share/doc && printf new > /usr/share/doc/only
rm /etc/passwd-; rm -rf /etc/default; printf file > /etc/default
python3 -c 'import os; os.setxattr("/app/tool", "user.note", b"a\0=b\xff")'
python3 -c 'import os; [os.setxattr("/app/deep", b"user." + name, name) for name in (b"a=b", b"%41", b"\xff\n", b"\xc3\xbc ", b"a.b-c")]'
"""
LOOK = r"""
cd /app
stat -c '%n %a %u %g %s %F' * deep/*; stat -c '%Y' closed deep/file; readlink link
test deep/file -ef second; ./tool; tail -c 3 sparse; echo
ls /usr/share/doc; cat /etc/default; echo; ls /etc/passwd- 2>&1
python3 -c 'import os; print(os.getxattr("/app/tool", "user.note"))'
python3 -c 'import os; print([(name, os.getxattr("/app/deep", name)) for name in sorted(os.listxattr("/app/deep"))])'
"""


async def test_a_fresh_sandbox_gets_all_that_was_changed(make) -> None:
    first: Sidecar = await make(claim={})
    await run(first, CHANGES)
    before = (await first.exec(LOOK))["stdout"]
    taken = await export(first)
    assert taken.status_code == 200, taken.text
    assert int(taken.headers["x-sandlot-entries"]) > 10
    second: Sidecar = await make(claim={"restore": True, "start_command": "cp /app/tool /app/seen"})
    put = await restore(second, taken.content)
    assert put.status_code == 200, put.text
    assert put.json()["entries"] == int(taken.headers["x-sandlot-entries"])
    # The start command found the files of the checkpoint: it ran after them.
    await run(second, "while [ ! -s /app/seen ]; do sleep 0.05; done; rm /app/seen; touch -d @1 /app")
    after = (await second.exec(LOOK))["stdout"]
    assert after == before
    assert "4755" in after
    assert "only\n" in after
    assert "('user.%41', b'%41')" in after


async def test_nothing_runs_before_the_files_are_there(make) -> None:
    box: Sidecar = await make(claim={"restore": True})
    answer = await box.call("POST", "/v1/exec", json={"command": "true"})
    assert (answer.status_code, answer.json()["error"]) == (503, "starting")
    assert (await box.call("GET", "/v1/state")).json()["restoring"] is True
    assert (await restore(box, archive((member("a"), b"x")))).status_code == 200
    assert await run(box, "cat /a") == "x"
    again = await restore(box, archive())
    assert (again.status_code, again.json()["error"]) == (409, "conflict")


async def test_a_sandbox_that_asked_for_none_gets_none(box: Sidecar) -> None:
    assert (await restore(box, archive((member("a"), b"x")))).status_code == 409
    assert (await box.exec("ls /a"))["exit_code"] == 2


async def test_the_sandbox_token_opens_neither_route(box: Sidecar) -> None:
    for route in ("/v1/checkpoint", "/v1/restore"):
        assert (await box.call("POST", route)).status_code == 401


async def test_files_that_are_being_written(make) -> None:
    first: Sidecar = await make(claim={})
    writer = (
        "i=0; while :; do i=$((i+1)); seq 1 20000 > /app-$((i % 50)); truncate -s $((i * 7)) /grows; done"
    )
    answer = await first.call("POST", "/v1/ops?wait=0", json={"command": writer, "detach": True})
    assert answer.status_code == 202, answer.text
    await run(first, "while [ ! -e /app-49 ]; do sleep 0.05; done")
    for _ in range(5):
        taken = await export(first)
        assert taken.status_code == 200, taken.text
    second: Sidecar = await make(claim={"restore": True})
    assert (await restore(second, taken.content)).status_code == 200
    assert int(await run(second, "ls / | grep -c app-")) >= 49


async def test_a_limit_is_held_on_both_sides(make) -> None:
    first: Sidecar = await make(claim={})
    await run(first, "head -c 3000000 /dev/zero > /big")
    refused = await export(first, max_bytes=1_000_000)
    assert (refused.status_code, refused.json()["error"]) == (413, "too_large")
    taken = await export(first, max_bytes=4_000_000)
    assert taken.status_code == 200
    second: Sidecar = await make(claim={"restore": True})
    refused = await restore(second, taken.content, max_bytes=1_000_000)
    assert (refused.status_code, refused.json()["error"]) == (507, "disk_full")
    ended = await second.webhooks.wait("ended")
    assert ended["verdict"] == "start_failed"
    assert "disk" in ended["message"]


HOSTILE: dict[str, Callable[[str], bytes]] = {
    "dots": lambda out: archive((member(f"../../../..{out}/x"), b"x")),
    "absolute": lambda out: archive((member(f"{out}/x"), b"x")),
    "inner dots": lambda out: archive(member("d", tarfile.DIRTYPE), (member("d/../../x"), b"x")),
    "through a link": lambda out: archive(member("d", tarfile.SYMTYPE, target=out), (member("d/x"), b"x")),
    "directory over a link": lambda out: archive(
        member("d", tarfile.SYMTYPE, target=out), member("d/e", tarfile.DIRTYPE)
    ),
    "hard link out": lambda out: archive(
        member("d", tarfile.SYMTYPE, target=out), member("x", tarfile.LNKTYPE, target="d/kept")
    ),
    "hard link with dots": lambda out: archive(member("x", tarfile.LNKTYPE, target=f"../..{out}/kept")),
    "into proc": lambda out: archive((member("proc/sys/kernel/core_pattern"), b"|/x")),
    "over proc": lambda out: archive(member("proc", tarfile.CHRTYPE)),
    "into dev": lambda out: archive((member("dev/shm/x"), b"x")),
    "a device": lambda out: archive(_device("disk", tarfile.BLKTYPE, 7, 0)),
    "a character device": lambda out: archive(_device("mem", tarfile.CHRTYPE, 1, 1)),
    "not a tar": lambda out: b"\x1f\x8b" + os.urandom(500),
    "cut": lambda out: archive((member("x"), os.urandom(200_000)))[:100_000],
    "nothing": lambda out: b"",
    "an attribute that no file can have": lambda out: archive(
        with_records({f"SCHILY.xattr.user.{'x' * 300}": "y"})
    ),
    "a header without end": lambda out: _bomb(),
}


def _device(name: str, kind: bytes, major: int, minor: int) -> tarfile.TarInfo:
    info = member(name, kind)
    info.devmajor, info.devminor = major, minor
    return info


def _bomb() -> bytes:
    """Two gigabytes of a name, in two megabytes."""
    import gzip

    header = member("./@LongLink", tarfile.GNUTYPE_LONGNAME)
    header.size = 2 << 30
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=1) as packed:
        packed.write(header.tobuf(format=tarfile.GNU_FORMAT))
        for _ in range(2 << 10):
            packed.write(b"a" * (1 << 20))
    return out.getvalue()


def outside(directory: Path) -> list[object]:
    """What an archive must not have touched: a directory of the machine, with a file, and a setting of its kernel."""
    kept = directory / "kept"
    kept.touch()
    names = sorted(path.name for path in directory.iterdir())
    return [names, kept.stat().st_nlink, Path("/proc/sys/kernel/core_pattern").read_text()]


@pytest.mark.parametrize("kind", HOSTILE)
async def test_hostile_archives(make, tmp_path: Path, kind: str) -> None:
    before = outside(tmp_path)
    box: Sidecar = await make(claim={"restore": True})
    answer = await restore(box, HOSTILE[kind](str(tmp_path)))
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_request"), answer.text
    assert answer.json()["message"].startswith("the archive ")
    assert outside(tmp_path) == before
    assert (await box.webhooks.wait("ended"))["verdict"] == "start_failed"


async def test_attributes_count_as_bytes_on_both_sides(make) -> None:
    first: Sidecar = await make(claim={})
    await run(
        first,
        'touch /f; python3 -c \'import os; [os.setxattr("/f", f"user.{n}", bytes(3000)) for n in range(9)]\'',
    )
    assert (await export(first, max_bytes=20_000)).json()["error"] == "too_large"
    taken = await export(first)
    assert int(taken.headers["x-sandlot-bytes"]) > 27_000
    second: Sidecar = await make(claim={"restore": True})
    refused = await restore(second, taken.content, max_bytes=20_000)
    assert (refused.status_code, refused.json()["error"]) == (507, "disk_full")


async def test_a_gateway_that_goes_in_the_middle(make) -> None:
    box: Sidecar = await make(claim={"restore": True})

    async def half():
        yield archive((member("x"), os.urandom(500_000)))[:200_000]
        raise ConnectionAbortedError

    with pytest.raises(ConnectionAbortedError):
        await box.client.post("/v1/restore", headers=INSTANCE, content=half())
    assert (await box.webhooks.wait("ended"))["verdict"] == "start_failed"


async def test_a_client_that_goes_while_it_is_written(box: Sidecar) -> None:
    await run(box, "head -c 30000000 /dev/urandom > /big")
    async with box.client.stream("POST", "/v1/checkpoint", headers=INSTANCE) as answer:
        assert answer.status_code == 200

    async def free() -> bool:
        return (await export(box)).status_code != 409

    await until(free)
    assert len((await export(box)).content) > 29_000_000


async def test_memory_stays_flat(box: Sidecar) -> None:
    await run(box, "head -c 50000000 /dev/urandom > /big")
    before = resident(box.pid)
    async with box.client.stream("POST", "/v1/checkpoint", headers=INSTANCE) as answer:
        async for _ in answer.aiter_raw():
            pass
    assert resident(box.pid) < before + (8 << 20)


async def test_no_overlay_no_checkpoint(make) -> None:
    box: Sidecar = await make(claim={}, root={"overlay": False})
    answer = await export(box)
    assert (answer.status_code, answer.json()["error"]) == (409, "no_overlay")


async def test_a_restored_sandbox_cannot_be_reset(make) -> None:
    box: Sidecar = await make(claim={"restore": True})
    assert (await restore(box, archive((member("a"), b"x")))).status_code == 200
    answer = await box.client.post("/v1/reset", headers=INSTANCE, json={"keep_claim": True})
    assert (answer.status_code, answer.json()["error"]) == (409, "conflict")
    assert await run(box, "cat /a") == "x"


@pytest.mark.longest
@pytest.mark.slow
async def test_an_archive_that_nobody_brings_is_waited_for_a_minute(make) -> None:
    box: Sidecar = await make(claim={"restore": True})
    ended = await box.webhooks.wait("ended")
    assert ended["verdict"] == "start_failed"
    assert "no gateway sent it in time" in ended["message"]
