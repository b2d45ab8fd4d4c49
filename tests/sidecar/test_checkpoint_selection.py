"""Checkpoints of some paths of a sandbox, without some names, and where a restore puts them."""

from __future__ import annotations

import io
import tarfile

import httpx
import pytest

from tests.sidecar.layers import INSTANCE, archive, member, restore, run, with_records
from tests.sidecar.support import Sidecar

pytestmark = pytest.mark.root


async def selected(box: Sidecar, **selection: list[str]) -> httpx.Response:
    return await box.client.post("/v1/checkpoint", json=selection, headers=INSTANCE)


async def test_a_selection_has_nothing_else(make) -> None:
    first: Sidecar = await make(claim={})
    await run(
        first,
        "mkdir -p /deep/a/b/sub /deep/a/other; touch /deep/a/b/kept /deep/a/b/sub/kept /deep/a/other/file",
    )
    await run(
        first,
        "touch /deep/a/b/conftest.py /deep/a/b/sub/x.pth; mkdir /deep/a/b/conftest.d; chmod 700 /deep /etc",
    )
    await run(first, "rm /usr/bin/env; rm -r /usr/share/doc; mkdir /usr/share/doc; touch /usr/share/doc/new")
    taken = await selected(first, paths=["/deep/a/b", "/usr/share/doc/new"], without=["conftest.*", "*.pth"])
    assert taken.headers["x-sandlot-selected"] == "1"
    second: Sidecar = await make(claim={"restore": True})
    assert (await restore(second, taken.content)).status_code == 200
    assert (
        await run(second, "cd /deep && find . | sort")
        == ".\n./a\n./a/b\n./a/b/kept\n./a/b/sub\n./a/b/sub/kept\n"
    )
    # What is above a selected path keeps the image's rights and contents, also where the agent has replaced it.
    assert (
        await run(second, "stat -c %a /deep /etc; test -x /usr/bin/env; ls /usr/share/doc | wc -l")
        > "755\n755\n2"
    )


async def test_a_selected_link_selects_nothing(make) -> None:
    first: Sidecar = await make(claim={})
    await run(first, "ln -s /etc /project; mkdir /other; ln -s /etc /other/dir; touch /etc/new")
    taken = await selected(first, paths=["/project", "/project/new", "/other/dir/new"])
    with tarfile.open(fileobj=io.BytesIO(taken.content)) as found:
        assert found.getnames() == ["other"]


@pytest.mark.parametrize("paths", [["work"], ["/"], ["/a/../b"], ["/a//b"], ["/a/"], [1], "/a", ["/a"] * 17])
async def test_a_path_of_another_form_is_refused(box: Sidecar, paths: object) -> None:
    answer = await box.client.post("/v1/checkpoint", json={"paths": paths}, headers=INSTANCE)
    assert (answer.status_code, answer.json()["field"]) == (400, "paths")


async def test_what_is_below_a_path_that_is_no_directory_here_is_left_out(make) -> None:
    """A selected path is of the agent's layer; where the image has a link or a file above it, that stays."""
    above = {"SANDLOT.above": "y"}
    box: Sidecar = await make(claim={"restore": True})
    taken = archive(
        with_records(above, name="bin", kind=tarfile.DIRTYPE),
        (member("bin/sh"), b"hack"),
        with_records(above, name="etc", kind=tarfile.DIRTYPE),
        with_records(above, name="etc/passwd", kind=tarfile.DIRTYPE),
        (member("etc/passwd/x"), b"hack"),
        member("etc/hard", tarfile.LNKTYPE, target="bin/sh"),
        (member("etc/new"), b"new"),
    )
    put = await restore(box, taken)
    assert put.status_code == 200, put.text
    seen = await run(
        box, "readlink /bin; head -c 5 /etc/passwd; cat /etc/new; ls -d /etc/hard 2>&1; stat -c %a /etc"
    )
    assert seen.startswith("usr/bin\nroot:new"), seen
    assert "No such file" in seen
    assert seen.endswith("755\n")
