"""Whose a GPU is while removals fail, pools wait and starts run at the same time. The devices are harmless ones."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sandlot_contract.template import Template
from sandlot_gateway.core.backend import BackendError, Unavailable
from sandlot_gateway.core.instances import Instance, PoolSpec

from tests.local.conftest import NEEDS_ROOT, Machine
from tests.local.gateway import Gateway
from tests.local.gpu_machine import H100, gpu_machine
from tests.local.test_gpus import ONE, out, started
from tests.waiting import until

pytestmark = NEEDS_ROOT


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return gpu_machine(tmp_path / "gpus", H100, H100)


def remount(machine: Machine, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,bind,{how}", machine.state_dir / "instances"], check=True)


@contextmanager
def nothing_can_be_removed(machine: Machine) -> Iterator[None]:
    """Removals fail, as while a process is stuck in the kernel."""
    instances = machine.state_dir / "instances"
    subprocess.run(["mount", "--bind", instances, instances], check=True)
    try:
        remount(machine, "ro")
        yield
    finally:
        subprocess.run(["umount", "-l", instances], check=True)


async def is_free(gateway: Gateway, template: Template) -> bool:
    try:
        await gateway.backend.launch(template)
    except Unavailable:
        return False
    return True


async def test_a_gpu_of_what_could_not_be_removed_stays_in_use(machine: Machine, root: Path) -> None:
    two = replace(ONE, gpu_count=2)
    async with machine.gateway(gpu_root=root) as gateway:
        instance, _ = await started(gateway, ONE)
        with nothing_can_be_removed(machine):
            await gateway.backend.destroy(instance.id)
            with pytest.raises(Unavailable, match="/dev/nvidia0 had a sandbox that could not be removed"):
                await gateway.backend.launch(two)
            await gateway.backend.stop(timeout=60)
            async with machine.gateway(gpu_root=root, upkeep=0.2) as after:
                with pytest.raises(Unavailable, match="1 of this machine's 2 such GPUs are free"):
                    await after.backend.launch(two)
                remount(machine, "rw")
                await until(lambda: is_free(after, two))
                await after.backend.destroy_all(timeout=60)


async def test_a_pool_waits_for_a_gpu_in_use_without_counting_failures(machine: Machine, root: Path) -> None:
    both = replace(ONE, gpu_count=2)
    async with machine.gateway(gpu_root=root) as gateway:
        instance, _ = await started(gateway, both)
        await gateway.backend.set_pool(PoolSpec("gpus", both, 1))
        await until(lambda: gateway.backend.pools()[0].message)
        [status] = gateway.backend.pools()
        assert status.failures == 0
        assert "0 of this machine's 2 such GPUs are free" in (status.message or "")
        await gateway.backend.destroy(instance.id)
        await gateway.until(lambda: gateway.warm_count("gpus") == 1)
        assert gateway.backend.pools()[0].message is None
        await gateway.backend.destroy_all(timeout=60)


async def test_starts_at_the_same_time_get_different_gpus(machine: Machine, root: Path) -> None:
    async with machine.gateway(gpu_root=root) as gateway:
        tried = await asyncio.gather(*(gateway.backend.launch(ONE) for _ in range(5)), return_exceptions=True)
        made = [one for one in tried if isinstance(one, Instance)]
        refused = [one for one in tried if isinstance(one, Unavailable)]
        assert (len(made), len(refused)) == (2, 3)
        boxes = []
        for instance in made:
            await gateway.until_ready(instance)
            boxes.append((instance, await gateway.claim(instance)))
        seen = [await out(gateway, box, "ls /dev | grep 'nvidia[0-9]'") for box in boxes]
        assert sorted(seen) == ["nvidia0\n", "nvidia1\n"]
        await gateway.backend.destroy_all(timeout=60)


async def test_a_start_that_fails_gives_its_gpus_back(machine: Machine, root: Path) -> None:
    both = replace(ONE, gpu_count=2)
    instances = machine.state_dir / "instances"
    async with machine.gateway(gpu_root=root) as gateway:
        instances.rename(machine.state_dir / "elsewhere")
        with pytest.raises(BackendError, match="cannot start a sandbox"):
            await gateway.backend.launch(both)
        (machine.state_dir / "elsewhere").rename(instances)
        await started(gateway, both)
        await gateway.backend.destroy_all(timeout=60)


async def test_a_pool_can_be_made_smaller_once_the_driver_is_gone(machine: Machine, root: Path) -> None:
    async with machine.gateway(gpu_root=root) as gateway:
        await gateway.backend.set_pool(PoolSpec("gpus", ONE, 1))
        await gateway.until(lambda: gateway.warm_count("gpus") == 1)
        (root / "dev/nvidiactl").unlink()
        await gateway.backend.set_pool(PoolSpec("gpus", ONE, 0))
        for grown in (PoolSpec("gpus", ONE, 1), PoolSpec("gpus", replace(ONE, gpu_type="H100"), 0)):
            with pytest.raises(BackendError, match="/dev/nvidiactl"):
                await gateway.backend.set_pool(grown)
        assert gateway.backend.pool("gpus") == PoolSpec("gpus", ONE, 0)
        await gateway.backend.destroy_all(timeout=60)
