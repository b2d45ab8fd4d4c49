"""The cleaning command: refuses beside a living gateway, and after a crash of everything leaves nothing."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
from sandlot_contract.template import Template
from sandlot_gateway.backends.local.clean import clean
from sandlot_gateway.backends.local.lock import InUse

from tests.local.conftest import Machine
from tests.local.killed import kill_a_gateway

SMALL = Template("host", memory=256 << 20)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real namespaces and cgroups")


async def run_clean(machine: Machine, *arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sandlot_gateway.backends.local.clean"),
        *("--state-dir", str(machine.state_dir), *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


@pytest.mark.root
@needs_root
async def test_after_a_killed_gateway_everything_goes_and_is_reported(machine: Machine) -> None:
    ids = await kill_a_gateway(machine)
    assert machine.processes()
    status, out, _ = await run_clean(machine, "--json")
    report = json.loads(out)
    removed = {item["id"]: item for item in report["instances"]}
    assert status == 0
    assert set(ids) <= removed.keys()
    assert all(removed[name]["processes"] and removed[name]["cgroups"] for name in ids)
    assert machine.left() == []
    for name in ids:
        assert machine.cgroups(name) == []
    status, out, _ = await run_clean(machine)
    assert (status, out) == (0, f"nothing to clean in {machine.state_dir}\n")


@pytest.mark.root
@needs_root
async def test_refuses_while_a_gateway_works_there(machine: Machine) -> None:
    async with machine.gateway() as gateway:
        instance = await gateway.backend.launch(SMALL)
        await gateway.until_ready(instance)
        status, _, err = await run_clean(machine)
        assert status == 2
        assert f"in use by the gateway with pid {os.getpid()}" in err
        with pytest.raises(InUse):
            await asyncio.to_thread(clean, machine.state_dir)
        token = await gateway.claim(instance)
        assert (await gateway.run(instance, token, "echo alive"))["stdout"] == "alive\n"
        await gateway.backend.destroy_all(timeout=60)


def test_a_directory_that_is_not_there_is_clean(tmp_path: Path) -> None:
    report = clean(tmp_path / "none", cache_dir=tmp_path / "cache", images=True)
    assert (report.instances, report.files, report.problems) == ([], [], [])
    assert not (tmp_path / "none").exists()


def test_images_go_when_asked_for(tmp_path: Path) -> None:
    image = tmp_path / "cache" / "images" / ("a" * 64) / "rootfs"
    image.mkdir(parents=True)
    assert clean(tmp_path / "state", cache_dir=tmp_path / "cache").images == []
    assert image.exists()
    assert len(clean(tmp_path / "state", cache_dir=tmp_path / "cache", images=True).images) == 1
    assert not image.exists()
