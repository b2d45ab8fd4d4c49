"""Bounds of an upload: in time between its pieces and in all, and in room, also while others are written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sandlot_gateway.e2b.builds.archives import Archives
from sandlot_gateway.e2b.failures import Problem

from tests.waiting import until

HASH = "ab" * 32
PIECE = bytes(1 << 20)


async def never() -> AsyncIterator[bytes]:
    yield PIECE
    await asyncio.get_running_loop().create_future()


async def drops() -> AsyncIterator[bytes]:
    while True:
        yield b"x"
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("pieces", "limits"),
    [(never(), {"piece_within": 0.05}), (drops(), {"whole_within": 0.1})],
    ids=["stops", "drops"],
)
async def test_a_slow_upload_ends_and_leaves_nothing(
    pieces: AsyncIterator[bytes], limits: dict[str, float], tmp_path: Path
) -> None:
    archives = Archives(**limits)
    with pytest.raises(Problem, match="archive") as raised:
        async with asyncio.timeout(60):
            await archives.take(tmp_path, HASH, pieces)
    assert (raised.value.status, raised.value.headers) == (408, [(b"connection", b"close")])
    assert list((tmp_path / "files").iterdir()) == []


async def test_uploads_at_the_same_time_share_the_room_of_their_tenant(tmp_path: Path) -> None:
    archives = Archives(most_of_tenant=3 << 20)
    turn = asyncio.Event()

    async def two() -> AsyncIterator[bytes]:
        yield PIECE
        await turn.wait()
        yield PIECE

    async def one(number: int) -> bool:
        try:
            await archives.take(tmp_path, f"{number}" * 64, two())
        except Problem as problem:
            assert (problem.status, "archives" in str(problem)) == (413, True)
            return False
        return True

    both = asyncio.gather(one(1), one(2))
    files = tmp_path / "files"
    await until(
        lambda: files.is_dir() and len([each for each in files.iterdir() if each.stat().st_size]) == 2
    )
    turn.set()
    kept = await both
    assert sum(kept) == len(list(files.iterdir())) < 2
    assert await archives.open(tmp_path, "3" * 64) is None
