"""Creates that were answered PENDING are kept on disk encrypted: whoever reads a copy of the files learns no secret."""

from __future__ import annotations

import asyncio
import logging
import secrets
from pathlib import Path

import pytest

from tests.gateway.conftest import Running, running
from tests.gateway.machine import Machine

SECRET = "hidden-from-whoever-copies-the-disk"


async def pending(box: Running) -> str:
    made = await box.create(
        wait_seconds=0,
        secrets={"KEY": SECRET},
        environment_vars={"A": SECRET},
        start_command=f"echo {SECRET}",
    )
    assert made["status"] == "PENDING"
    return made["id"]


def files_below(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def forget(machine: Machine) -> None:
    """What was starting is gone with the power."""
    machine.sidecars.clear()
    machine.instances.clear()


async def test_no_file_below_the_state_directory_has_a_secret(state_dir: Path, machine: Machine) -> None:
    machine.hold_ready = asyncio.Event()
    async with running(state_dir, machine) as box:
        sandbox_id = await pending(box)
        files = files_below(state_dir)
        assert [path.stem for path in files if path.parent.name == "pending"] == [sandbox_id]
        for path in files:
            content = path.read_bytes()
            assert SECRET.encode() not in content, path
            assert SECRET.encode().hex().encode() not in content, path


@pytest.mark.parametrize("damage", ["another master key", "another sandbox's name", "cut off", "plain text"])
async def test_a_record_that_cannot_be_decrypted_is_dropped_and_said(
    state_dir: Path, machine: Machine, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    machine.hold_ready = asyncio.Event()
    async with running(state_dir, machine, spare_seconds=0.0) as box:
        sandbox_id = await pending(box)
    for sidecar in list(machine.sidecars.values()):
        await sidecar.close()
    forget(machine)
    machine.hold_ready = None
    [kept] = (state_dir / "pending").iterdir()
    if damage == "another master key":
        (state_dir / "key").write_bytes(secrets.token_bytes(32))
    elif damage == "another sandbox's name":
        kept.rename(kept.with_stem(f"sb-{'0' * 20}"))
    elif damage == "cut off":
        kept.write_bytes(kept.read_bytes()[:20])
    else:
        kept.with_suffix(".json").write_text(f'{{"secrets": {{"KEY": "{SECRET}"}}}}')
        kept.unlink()
    caplog.set_level(logging.WARNING)
    async with running(state_dir, machine) as box:
        assert list((state_dir / "pending").iterdir()) == []
        assert (await box.client.get(f"/api/v1/sandbox/{sandbox_id}")).status_code == 404
        assert box.gateway.supply.waiting == 0
    [said] = [record.getMessage() for record in caplog.records if "pending create" in record.getMessage()]
    assert SECRET not in said
    assert "master key" in said or damage == "plain text"
