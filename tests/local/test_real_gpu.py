"""A sandbox with a GPU of this machine: NVIDIA's own program and CUDA work in it, and not in one without."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from sandlot_contract.template import Template
from sandlot_gateway.backends.local.gpu_devices import find_gpus
from sandlot_gateway.core.backend import Unavailable

from tests.local.conftest import NEEDS_ROOT, Machine

HERE = find_gpus(Path("/"))
pytestmark = [
    *NEEDS_ROOT,
    pytest.mark.skipif(not HERE, reason="needs an NVIDIA GPU: this machine has no /dev/nvidia0"),
]

PLAIN = Template("host", memory=8 << 30, pids=512)
CHECK = [sys.executable, "-c", Path(__file__).with_name("cuda_check.py").read_text()]


async def test_cuda_works_with_a_gpu_and_only_there(machine: Machine) -> None:
    async with machine.gateway() as gateway:
        for _ in range(2):
            instance = await gateway.backend.launch(replace(PLAIN, gpu_count=1))
            await gateway.until_ready(instance)
            token = await gateway.claim(instance)
            listed = await gateway.run(instance, token, "nvidia-smi -L", timeout=60)
            assert (listed["exit_code"], listed["stdout"].count("GPU ")) == (0, 1), listed
            checked = await gateway.run(instance, token, CHECK, timeout=60)
            assert (checked["exit_code"], checked["stdout"]) == (0, "1 same\n"), checked
            await gateway.backend.destroy(instance.id)
        plain = await gateway.backend.launch(PLAIN)
        await gateway.until_ready(plain)
        token = await gateway.claim(plain)
        found = await gateway.run(plain, token, "ls /dev")
        assert "nvidia" not in found["stdout"]
        assert (await gateway.run(plain, token, CHECK, timeout=60))["exit_code"] != 0
        await gateway.backend.destroy_all(timeout=60)


async def test_all_gpus_of_the_machine_are_in_use_until_their_sandbox_is_removed(machine: Machine) -> None:
    all_of_them = replace(PLAIN, gpu_count=len(HERE), gpu_type=HERE[0].model or None)
    async with machine.gateway() as gateway:
        instance = await gateway.backend.launch(all_of_them)
        await gateway.until_ready(instance)
        with pytest.raises(Unavailable, match="GPUs are free"):
            await gateway.backend.launch(replace(PLAIN, gpu_count=1))
        await gateway.backend.destroy(instance.id)
        again = await gateway.backend.launch(all_of_them)
        await gateway.until_ready(again)
        await gateway.backend.destroy_all(timeout=60)
