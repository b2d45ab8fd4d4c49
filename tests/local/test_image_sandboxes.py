"""A sandbox of an OCI archive: a root made of this machine's shell and its libraries, nothing of the host's files."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from sandlot_contract.template import Template

from tests.local.conftest import Machine
from tests.local.oci import entry, layer, one_image, symlink

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real namespaces and cgroups"),
]


def program_files(name: str) -> dict[str, Path]:
    """A program and the libraries it is linked with, by their path in an image."""
    program = shutil.which(name)
    assert program is not None
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    libraries = re.findall(r"(/[^ ]+)", listed)
    return {f"bin/{name}": Path(program).resolve()} | {
        path.lstrip("/"): Path(path).resolve() for path in libraries
    }


def small_root(path: Path, **settings: Any) -> Path:
    files: dict[str, Path] = {}
    for name in ("sh", "cat", "ls", "id", "env", "pwd"):
        files |= program_files(name)
    first = layer(
        *(entry(name) for name in ("bin", "etc", "tmp", "app", "proc", "dev", "home/user")),
        *(entry(name, source.read_bytes(), mode=0o755) for name, source in sorted(files.items())),
        entry("etc/passwd", b"root:x:0:0::/:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n"),
        entry("etc/group", b"root:x:0:\nuser:x:1000:\n"),
        entry("etc/old", b"of the first layer"),
    )
    second = layer(
        entry("etc/.wh.old", b""), entry("app/hello", b"from the image\n"), symlink("app/link", "/app/hello")
    )
    config = {
        "Env": ["PATH=/bin", "FLAVOUR=small"],
        "WorkingDir": "/app",
        "User": "user",
        "Entrypoint": ["/none"],
        **settings,
    }
    return one_image([first, second], config=config).archive(path)


async def test_a_sandbox_of_an_oci_archive(machine: Machine) -> None:
    image = small_root(machine.directory / "small.tar")
    template = Template(str(image), memory=256 << 20, pids=64)
    async with machine.gateway() as gateway:
        instance = await gateway.backend.launch(template)
        await gateway.until_ready(instance)
        token = await gateway.claim(instance)

        async def out(command: str, **extra: object) -> str:
            result = await gateway.run(instance, token, command, **extra)
            assert result["exit_code"] == 0, result
            return str(result["stdout"])

        assert await out("pwd; cat link; echo $FLAVOUR; id -un") == "/app\nfrom the image\nsmall\nuser\n"
        assert "old" not in (await out("ls /etc")).split()
        listing = set((await out("ls -A /")).split())
        assert {"app", "bin", "etc"} <= listing
        assert not {"root", "work", "usr", "boot"} & listing
        await out("echo changed > /app/hello; cat /app/hello", user="root")
        again = await gateway.backend.launch(template)
        await gateway.until_ready(again)
        token = await gateway.claim(again)
        instance = again
        assert await out("cat /app/hello") == "from the image\n"
        await gateway.backend.destroy_all(timeout=60)


async def test_a_sandbox_of_an_image_without_a_shell(machine: Machine) -> None:
    files = layer(
        *(entry(name, source.read_bytes(), mode=0o755) for name, source in program_files("cat").items()),
        entry("etc/passwd", b"root:x:0:0::/root:/sbin/nologin\napp:x:1000:1000::/home/app:/sbin/nologin\n"),
    )
    config = {"User": "app:44", "WorkingDir": "/srv/app", "Env": ["PATH=/bin"]}
    image = one_image([files], config=config).archive(machine.directory / "distroless.tar")
    async with machine.gateway() as gateway:
        instance = await gateway.backend.launch(Template(str(image), memory=256 << 20, pids=64))
        await gateway.until_ready(instance)
        token = await gateway.claim(instance)
        result = await gateway.run(instance, token, ["cat", "/proc/self/status"])
        assert result["exit_code"] == 0, result
        lines = str(result["stdout"]).splitlines()
        assert "Uid:\t1000\t1000\t1000\t1000" in lines
        assert "Gid:\t44\t44\t44\t44" in lines
        refused = await gateway.run(instance, token, "cat /etc/passwd")
        assert refused["verdict"] == "start_failed"
        assert "no bash and no sh" in str(refused["message"])
        await gateway.backend.destroy_all(timeout=60)
