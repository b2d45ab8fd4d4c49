"""The whole backend as an ordinary user: no cgroups, no chown, the same sandbox."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.local.gpu_machine import H100, gpu_machine
from tests.local.others import become_nobody, python_for_others
from tests.local.test_image_sandboxes import small_root

SCRIPT = """
import sys
sys.path[:0] = sys.argv[3:]
import asyncio, json
from pathlib import Path
from sandlot_gateway.core.backend import Template
from tests.local.gateway import Gateway
async def main():
    async with Gateway(Path(sys.argv[1]), gpu_root=Path(sys.argv[1], "gpus")) as gateway:
        shown = {"notes": gateway.backend.notes}
        for image in ("host", sys.argv[2]):
            instance = await gateway.backend.launch(Template(image, memory=256 << 20, pids=64))
            await gateway.until_ready(instance)
            token = await gateway.claim(instance)
            result = await gateway.run(instance, token, "echo $((6*7)); id -u; ls /app/hello")
            shown[image] = result["stdout"]
            state = await gateway.call(instance, "GET", "/v1/state", token=token)
            shown["sandbox"] = state.json()["notes"]
            if image != "host":
                continue  # the small root has no tools for it
            hog = await gateway.run(instance, token, "head -c 600m /dev/zero | tail -c 500m | wc -c")
            shown["hog"] = [hog["stdout"].strip(), hog["stderr"]]
        for image in (sys.argv[2], "host"):  # laid under one that runs
            instance = await gateway.backend.launch(Template("host", memory=256 << 20, pids=64))
            await gateway.until_ready(instance)
            document = await gateway.image_for(instance, sys.argv[2])
            token = await gateway.claim(instance, image=document)
            if image == "host":
                await gateway.call(instance, "POST", "/v1/reset", {"keep_claim": False}, token=instance.token)
                await gateway.until_ready(instance, generation=2)
                token = await gateway.claim(instance, image=await gateway.image_for(instance, "host"))
            result = await gateway.run(instance, token, "echo $((6*7)); id -u; ls /app/hello")
            shown[f"claimed {image}"] = result["stdout"]
        if Path(sys.argv[1], "gpus").exists():
            instance = await gateway.backend.launch(Template("host", memory=256 << 20, pids=64, gpu_count=1))
            await gateway.until_ready(instance)
            token = await gateway.claim(instance)
            look = "head -c 1 /dev/nvidia0 | od -An -tx1; nvidia-smi; ulimit -v; touch /usr/local/nvidia/lib/new"
            shown["gpu"] = (await gateway.run(instance, token, look))["stdout"]
        await gateway.backend.destroy_all(timeout=60)
        shown["left"] = [path.name for path in (Path(sys.argv[1]) / "state" / "instances").iterdir()]
        print(json.dumps(shown))
asyncio.run(main())
"""


@pytest.mark.timeout(300)
def test_an_ordinary_user_has_sandboxes_too() -> None:
    directory = Path(tempfile.mkdtemp(prefix="sandlot-"))
    try:
        image = small_root(directory / "small.tar")
        image.chmod(0o644)
        if os.geteuid() == 0:
            os.chown(directory, 65534, 65534)
            gpu_machine(directory / "gpus", H100)  # whose device files only root can make
        python, paths = python_for_others(directory, become=become_nobody())
        done = subprocess.run(
            [*python, "-c", SCRIPT, str(directory), str(image), *paths],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
            env={"PATH": "/usr/bin:/bin", "HOME": str(directory)},
            cwd="/",
        )
        if "CannotIsolate" in done.stderr:
            pytest.skip(done.stderr.strip().splitlines()[-1])
        assert done.returncode == 0, done.stderr
        shown = json.loads(done.stdout)
        assert shown["host"] == "42\n0\n"
        assert shown[str(image)].endswith("/app/hello\n")
        assert shown["claimed host"] == "42\n0\n"
        assert shown[f"claimed {image}"] == "42\n0\n/app/hello\n"
        assert shown["left"] == []
        assert shown["hog"][0] == "0", "the memory limit of 256 MiB does not hold"
        assert "memory exhausted" in shown["hog"][1]
        if os.geteuid() == 0:
            assert shown["gpu"] == " 00\nsmi: 0\nunlimited\n"
        if any("cgroup" in note for note in shown["notes"]):
            assert any("rlimits" in note for note in shown["sandbox"]), shown
    finally:
        shutil.rmtree(directory)
