"""COPY of many files on a real local stack: as archives, with the owners, modes and names of one by one, and in its time."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sandlot import AsyncClient, AsyncSandbox
from sandlot._async.copies import SMALL, AsyncCopier
from sandlot._dockerfile.context import open_context
from sandlot._dockerfile.copy_plan import Order

from tests.local.test_image_sandboxes import small_root
from tests.stack import Stack

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real namespaces")]

FILES = 200
LOOK = "find /made -printf '%P %m %u:%G %y %s\\0' | LC_ALL=C sort -z | tr '\\0' '\\n'"


@pytest.fixture
async def client(stack: Stack) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(url=stack.url, api_key=stack.api_key) as client:
        yield client


class _Late(Exception):
    pass


class _Time:
    """Seconds that are left, until it was asked so many times."""

    def __init__(self, most: int) -> None:
        self.asked = 0
        self.most = most

    def left(self) -> float:
        self.asked += 1
        if self.asked > self.most:
            raise _Late
        return 90.0


def many(root: Path) -> None:
    """Files of all kinds of names and modes, in two directories, and a link."""
    for number in range(FILES):
        path = root / ("sub" if number % 2 else ".") / f"-{number} {'é' * (number % 90)}\n"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * number)
        path.chmod((0o4755, 0o600, 0o644)[number % 3])
    (root / "link").symlink_to("sub")


@pytest.mark.parametrize("user", [None, "nobody"])
async def test_many_files_are_copied_by_few_requests(
    tmp_path: Path, client: AsyncClient, user: str | None
) -> None:
    many(tmp_path)
    context = open_context(tmp_path, tmp_path / "Dockerfile")
    time = _Time(FILES // 4)
    async with await AsyncSandbox.create("host", client=client) as first:
        order = Order(("",), "/made", into=True, user=user, written=(".",))
        await AsyncCopier(first, left=time.left).from_context(order, context)
        seen = await first.exec(LOOK)
        lines = seen.stdout.replace("\n ", " ").splitlines()
        owner = f"{user or 'root'}:"
        assert len(lines) == FILES + 3
        assert f"-3 ééé 4755 {owner}" in "\n".join(lines)
        assert all(owner in line for line in lines)
        assert not (await first.exec("ls -A / | grep sandlot-copy")).stdout
        if user is None:
            return
        async with await AsyncSandbox.create("host", client=client) as second:
            order = Order(("/made",), "/made", into=False, written=("/made",))
            # A list for tar cannot have a line break.
            await first.exec('cd /made; for f in -* sub/-*; do mv -- "$f" "${f%?}"; done')
            time.asked = 0
            await AsyncCopier(second, left=time.left).from_sandbox(order, first)
            assert (await second.exec(LOOK)).stdout == (await first.exec(LOOK)).stdout


async def test_an_image_without_tar_gets_each_file_by_itself_and_in_time(
    tmp_path: Path, client: AsyncClient
) -> None:
    image = small_root(tmp_path / "small.tar")
    files = tmp_path / "files"
    files.mkdir()
    for number in range(40):
        (files / str(number)).write_text(str(number))
    context = open_context(files, files / "Dockerfile")
    order = Order(("",), "/made", into=True, written=(".",))
    async with await AsyncSandbox.create(str(image), client=client) as box:
        with pytest.raises(_Late):
            await AsyncCopier(box, left=_Time(20).left).from_context(order, context)
        assert 0 < len(await box.files.list("/made")) < 40
        await AsyncCopier(box, left=_Time(90).left).from_context(order, context)
        assert len(await box.files.list("/made")) == 40
        assert [info.name for info in await box.files.list("/") if "copy" in info.name] == []


async def test_of_a_name_that_an_archive_has_twice_the_last_file_counts(
    tmp_path: Path, client: AsyncClient
) -> None:
    files = {str(number): b"" for number in range(20)}
    with tarfile.open(tmp_path / "all.tar", "w") as archive:
        for name, content in [("a", bytes(SMALL + 1)), *files.items(), ("a", b"new")]:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    context = open_context(tmp_path, tmp_path / "Dockerfile")
    order = Order(("all.tar",), "/made", into=True, written=("all.tar",), unpacks=True)
    async with await AsyncSandbox.create("host", client=client) as box:
        await AsyncCopier(box, left=_Time(90).left).from_context(order, context)
        assert await box.files.read("/made/a") == b"new"


async def test_a_tar_that_a_stage_replaced_and_links_of_a_wildcard_give_the_planned_files(
    client: AsyncClient,
) -> None:
    order = Order(("/from/*",), "/made", into=True, written=("/from/*",))
    fill = "mkdir /from; cd /from; echo one > /one; for n in $(seq 20); do ln -s /one $n; done"
    replace = "set -e; tar=$(command -v tar); rm $tar; printf '#!/bin/sh\\ntruncate -s 1T $2\\n' > $tar; chmod 755 $tar"
    async with await AsyncSandbox.create("host", client=client) as first:
        assert (await first.exec(fill, user=0)).ok
        for broken in (False, True):
            if broken:
                assert (await first.exec(replace, user=0)).ok
            async with await AsyncSandbox.create("host", client=client) as second:
                copier = AsyncCopier(second, left=_Time(1000 if broken else 10).left)
                await copier.from_sandbox(order, first)
                assert (await second.exec("cat /made/*")).stdout == "one\n" * 20
