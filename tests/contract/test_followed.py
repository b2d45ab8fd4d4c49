"""Following a file that changes: what fails with one change is told, and does not end the following."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from sandlot_contract.followed import follow
from sandlot_contract.keyring import Keyring, KeyringFiles, key_id

from tests.waiting import loop_turns, until


async def test_an_exception_with_one_change_does_not_end_the_following(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "file"
    file.write_text("first")
    used: list[str] = []
    failing: list[bool] = []

    async def use(found: str) -> None:
        if found == "bad":
            raise RuntimeError("it cannot be used")
        used.append(found)

    following = asyncio.create_task(follow(file.read_text, use, used="first", failing=failing.append))
    try:
        file.write_text("bad")
        await until(lambda: failing or following.done())
        assert failing == [True]
        assert "it cannot be used" in caplog.text
        file.write_text("good")
        await until(lambda: used or following.done())
        assert used == ["good"]
    finally:
        following.cancel()
        await asyncio.wait([following])


async def test_a_program_that_starts_during_a_rotation_logs_the_keys_it_knows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    keys = Keyring(b"o" * 32, b"n" * 32)
    following = asyncio.create_task(KeyringFiles(tmp_path / "master").follow(lambda _: None, used=keys))
    try:
        await loop_turns(2)
        assert (
            f"master key: {key_id(b'o' * 32)} signs, others that are valid: {key_id(b'n' * 32)}"
            in caplog.text
        )
    finally:
        following.cancel()
        await asyncio.wait([following])
