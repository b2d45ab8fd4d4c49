"""Sandboxes with GPUs on one machine: what they see, and whose a GPU is. The devices are real, and harmless ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sandlot_contract.template import Template
from sandlot_gateway.core.backend import BackendError, Unavailable
from sandlot_gateway.core.instances import Instance, PoolSpec

from tests.local.conftest import NEEDS_ROOT, SMALL, Machine
from tests.local.gateway import Gateway
from tests.local.gpu_machine import H100, add_control, add_device, add_driver, add_gpu, gpu_machine
from tests.local.oci import entry, layer, one_image, symlink
from tests.local.test_image_sandboxes import program_files, small_root

pytestmark = NEEDS_ROOT

ONE = replace(SMALL, gpu_count=1)
DEVICES = "cd /dev; for name in nvidia*; do stat -c '%n %t:%T' $name; done 2>/dev/null"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return gpu_machine(tmp_path / "gpus", H100, H100)


async def started(gateway: Gateway, template: Template) -> tuple[Instance, str]:
    instance = await gateway.backend.launch(template)
    await gateway.until_ready(instance)
    return instance, await gateway.claim(instance)


async def out(gateway: Gateway, box: tuple[Instance, str], command: str, **extra: Any) -> str:
    result = await gateway.run(*box, command, **extra)
    assert result["exit_code"] == 0, result
    return result["stdout"]


async def test_a_sandbox_sees_its_own_gpu_and_the_driver_and_another_sees_neither(
    machine: Machine, root: Path
) -> None:
    async with machine.gateway(gpu_root=root) as gateway:
        first, second = [await started(gateway, ONE) for _ in range(2)]
        plain = await started(gateway, SMALL)
        assert (await out(gateway, first, DEVICES)).splitlines() == [
            "nvidia-uvm 1:3",
            "nvidia0 1:5",
            "nvidiactl 1:3",
        ]
        assert "nvidia1 1:7" in await out(gateway, second, DEVICES)
        assert "nvidia0" not in await out(gateway, second, "ls /dev")
        assert "nvidia" not in await out(gateway, plain, "ls /dev; ls /usr/local; env")
        assert await out(gateway, first, "head -c 3 /dev/nvidia0 | od -An -tx1") == " 00 00 00\n"
        await gateway.backend.destroy_all(timeout=60)


async def test_programs_find_the_driver_which_no_one_can_change(machine: Machine, root: Path) -> None:
    async with machine.gateway(gpu_root=root) as gateway:
        box = await started(gateway, ONE)
        assert await out(gateway, box, "nvidia-smi") == "smi: 0\n"
        listed = await out(gateway, box, "cd /usr/local/nvidia; ls lib64/; readlink lib/libcuda.so.1; ls bin")
        assert listed.split() == [
            "libcuda.so.1", "libcuda.so.580.1", "libnvidia-ml.so.1", "libnvidia-ml.so.580.1", "libcuda.so.580.1",
            "nvidia-smi",
        ]  # fmt: skip
        assert await out(gateway, box, "echo $LD_LIBRARY_PATH $NVIDIA_VISIBLE_DEVICES") == (
            "/usr/local/nvidia/lib 0\n"
        )
        for command in (
            "echo x >> /usr/local/nvidia/lib/libcuda.so.580.1",
            "chmod 777 /usr/local/nvidia/bin/nvidia-smi",
            "touch /usr/local/nvidia/lib/new",
            "chmod 600 /dev/nvidia0",
            "umount /usr/local/nvidia",
            "mknod /tmp/other c 1 7 && head -c 1 /tmp/other",
        ):
            assert (await gateway.run(*box, command))["exit_code"] != 0, command
        await gateway.backend.destroy_all(timeout=60)


async def test_the_owner_s_variables_are_kept(machine: Machine, root: Path) -> None:
    async with machine.gateway(gpu_root=root) as gateway:
        instance = await gateway.backend.launch(replace(ONE, gpu_count=2))
        await gateway.until_ready(instance)
        box = (
            instance,
            await gateway.claim(instance, env={"LD_LIBRARY_PATH": "/mine", "CUDA_VISIBLE_DEVICES": "1"}),
        )
        shown = await out(gateway, box, "echo $LD_LIBRARY_PATH $CUDA_VISIBLE_DEVICES $NVIDIA_VISIBLE_DEVICES")
        assert shown == "/mine:/usr/local/nvidia/lib 1 0,1\n"
        await gateway.backend.destroy_all(timeout=60)


async def test_a_gpu_is_free_again_once_all_of_its_sandbox_is_removed(machine: Machine, root: Path) -> None:
    async with machine.gateway(gpu_root=root) as gateway:
        first, _ = [await started(gateway, ONE) for _ in range(2)]
        with pytest.raises(Unavailable, match="0 of this machine's 2 such GPUs are free") as refused:
            await gateway.backend.launch(ONE)
        assert refused.value.only_kind
        await started(gateway, SMALL)
        await gateway.backend.destroy(first[0].id)
        third = await started(gateway, ONE)
        assert "nvidia0" in await out(gateway, third, "ls /dev")
        await gateway.backend.destroy_all(timeout=60)


async def test_the_next_gateway_knows_which_gpus_are_in_use(machine: Machine, root: Path) -> None:
    async with machine.gateway(gpu_root=root) as gateway:
        instance, _ = await started(gateway, replace(ONE, gpu_count=2))
    async with machine.gateway(gpu_root=root) as gateway:
        with pytest.raises(Unavailable, match="GPUs are free"):
            await gateway.backend.launch(ONE)
        await gateway.backend.destroy(instance.id)
        await started(gateway, ONE)
        await gateway.backend.destroy_all(timeout=60)


async def test_an_instance_with_gpus_is_never_used_again(machine: Machine, root: Path) -> None:
    async with machine.gateway(gpu_root=root) as gateway:
        await gateway.backend.set_pool(PoolSpec("gpus", ONE, 1))
        await gateway.until(lambda: gateway.backend.pools() and gateway.warm_count("gpus") == 1)
        instance = next(iter(gateway.warm.values()))
        token = await gateway.claim(instance)
        assert "nvidia0" in await out(gateway, (instance, token), "ls /dev")
        assert await gateway.recycle(instance) is False
        await gateway.backend.destroy_all(timeout=60)


@pytest.mark.parametrize(
    ("models", "template", "field", "text"),
    [
        ((), ONE, "gpu_count", "no NVIDIA GPU"),
        ((H100,), replace(ONE, gpu_count=2), "gpu_count", "has 1 of 2 GPUs"),
        ((H100,), replace(ONE, gpu_type="A100_80GB"), "gpu_type", H100),
        (
            (H100, "NVIDIA L4"),
            replace(ONE, gpu_count=2, gpu_type="L4"),
            "gpu_count",
            "1 of 2 GPUs of type 'L4'",
        ),
        (("",), replace(ONE, gpu_type="H100"), "gpu_type", "tells no model"),
    ],
)
async def test_what_the_machine_lacks_is_refused_with_its_field(
    machine: Machine, tmp_path: Path, models: tuple[str, ...], template: Template, field: str, text: str
) -> None:
    root = gpu_machine(tmp_path / "gpus", *models)
    async with machine.gateway(gpu_root=root) as gateway:
        with pytest.raises(BackendError, match=text) as caught:
            await gateway.backend.launch(template)
        assert caught.value.field == field
        with pytest.raises(BackendError, match=text) as caught:
            await gateway.backend.set_pool(PoolSpec("p", template, 1))
        assert caught.value.field == field
        assert gateway.backend.pools() == []


async def test_a_machine_without_the_whole_driver_says_what_it_lacks(
    machine: Machine, tmp_path: Path
) -> None:
    root = tmp_path / "gpus"
    add_gpu(root, 0)
    async with machine.gateway(gpu_root=root) as gateway:
        with pytest.raises(BackendError, match="/dev/nvidiactl"):
            await gateway.backend.launch(ONE)
        add_control(root)
        with pytest.raises(BackendError, match=r"libcuda\.so\.1"):
            await gateway.backend.launch(ONE)
        add_driver(root)
        add_device(root, "nvidia-uvm-tools", (1 << 8) | 3)
        box = await started(gateway, replace(ONE, gpu_type="h100"))
        assert "nvidia-uvm-tools 1:3" in await out(gateway, box, DEVICES)
        await gateway.backend.destroy_all(timeout=60)


@pytest.mark.parametrize(
    ("directory", "configuration"),
    [
        ("usr/local/nvidia/lib64", None),
        ("opt/driver/lib", {"etc/ld.so.conf": "include ld.so.conf.d/*.conf\n",
                            "etc/ld.so.conf.d/gpu.conf": "# of the driver\n/opt/driver/lib\n"}),
    ],
)  # fmt: skip
async def test_the_driver_is_found_where_the_dynamic_linker_looks(
    machine: Machine, tmp_path: Path, directory: str, configuration: dict[str, str] | None
) -> None:
    root = tmp_path / "gpus"
    add_gpu(root, 0)
    add_control(root)
    add_driver(root, directory=directory)
    for name, text in (configuration or {}).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    async with machine.gateway(gpu_root=root) as gateway:
        box = await started(gateway, ONE)
        assert "libcuda.so.580.1" in await out(gateway, box, "ls /usr/local/nvidia/lib")
        await gateway.backend.destroy_all(timeout=60)


async def test_the_gpu_and_the_driver_are_there_over_every_image_and_after_a_reset(
    machine: Machine, root: Path
) -> None:
    image = small_root(machine.directory / "small.tar")
    look = "test -c /dev/nvidia0 && cat /usr/local/nvidia/lib64/../bin/nvidia-smi && cat /app/hello"
    async with machine.gateway(gpu_root=root) as gateway:
        for start in (ONE, replace(ONE, image=str(image))):
            instance = await gateway.backend.launch(start)
            await gateway.until_ready(instance)
            box = instance, await gateway.claim(instance, image=await gateway.image_for(instance, str(image)))
            seen = await out(gateway, box, look)
            assert seen.endswith("from the image\n")
            reset = await gateway.call(
                instance, "POST", "/v1/reset", {"keep_claim": True}, token=instance.token
            )
            assert reset.json()["equal"], reset.body
            assert await out(gateway, box, look) == seen
            await gateway.backend.destroy(instance.id)


async def test_an_image_with_links_above_the_driver_s_directory(machine: Machine, root: Path) -> None:
    programs = program_files("sh") | program_files("cat")
    files = [entry(name, source.read_bytes(), mode=0o755) for name, source in sorted(programs.items())]
    links = [
        entry("opt/local"),
        entry("opt/local/own", b"its own\n"),
        entry("usr"),
        symlink("usr/local", "/opt/local"),
    ]
    image = one_image([layer(entry("proc"), entry("dev"), *files, *links)], config={"Env": ["PATH=/bin"]})
    image = image.archive(machine.directory / "links.tar")
    async with machine.gateway(gpu_root=root) as gateway:
        instance = await gateway.backend.launch(replace(ONE, image=str(image)))
        await gateway.until_ready(instance)
        box = instance, await gateway.claim(instance)
        seen = await out(gateway, box, "cat /usr/local/own /opt/local/nvidia/bin/nvidia-smi")
        assert seen.startswith("its own\n#!/bin/sh\n")
        await gateway.backend.destroy_all(timeout=60)
