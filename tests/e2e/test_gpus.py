"""GPUs from the SDK and the command line down to the sandbox, on a machine with harmless devices in their place."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from urllib.request import Request, urlopen

import pytest
from sandlot import BadRequest, Client, Pools, Sandbox
from sandlot.errors import WaitTimeout

from tests.cli.conftest import environment
from tests.local.conftest import NEEDS_ROOT
from tests.local.gpu_machine import H100, gpu_machine
from tests.stack import Stack, private_stack
from tests.waiting import SECONDS, wait_until

pytestmark = NEEDS_ROOT


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    root = gpu_machine(tmp_path / "gpus", H100)
    with private_stack("--gpu-root", str(root)) as running:
        yield running


def test_a_create_gets_the_gpu_and_the_next_one_waits_for_it(client: Client) -> None:
    box = Sandbox.create(client=client, gpu_count=1, gpu_type="H100_80GB")
    assert (box.info.gpu_count, box.info.gpu_type) == (1, "H100_80GB")
    assert box.exec("cd /dev; ls nvidia?; nvidia-smi").stdout == "nvidia0\nsmi: 0\n"
    with pytest.raises(WaitTimeout):
        Sandbox.create(client=client, gpu_count=1, wait=0.5)
    made: list[Sandbox] = []
    waiting = Thread(target=lambda: made.append(Sandbox.create(client=client, gpu_count=1)))
    waiting.start()
    with Sandbox.create(client=client) as plain:
        assert "nvidia" not in plain.exec("ls /dev /usr/local; env").stdout
    box.delete()
    waiting.join(timeout=SECONDS)
    assert made[0].exec("nvidia-smi").stdout == "smi: 0\n"
    made[0].delete()


def test_what_the_machine_lacks_names_the_argument(client: Client) -> None:
    for arguments, field in (
        ({"gpu_count": 2}, "gpu_count"),
        ({"gpu_count": 1, "gpu_type": "A100"}, "gpu_type"),
        ({"gpu_type": "H100"}, "gpu_type"),
    ):
        with pytest.raises(BadRequest) as refused:
            Sandbox.create(client=client, **arguments)
        assert refused.value.field == field
    with pytest.raises(BadRequest) as refused:
        Pools(client=client).set("too-much", size=1, gpu_count=2)
    assert refused.value.field == "gpu_count"


def test_a_pool_keeps_sandboxes_with_gpus_warm_and_uses_each_once(client: Client) -> None:
    pools = Pools(client=client)
    made = pools.set("gpus", size=1, gpu_count=1, gpu_type="H100")
    assert (made.gpu_count, made.gpu_type) == (1, "H100")
    for _ in range(2):
        pools.wait_warm("gpus", timeout=SECONDS)
        with Sandbox.create(client=client, gpu_count=1) as box:
            assert (box.info.pool_hit, box.info.gpu_type) == (True, "H100")
            assert "kept" not in box.exec("ls /dev/shm; touch /dev/shm/kept; nvidia-smi").stdout
    with pytest.raises(BadRequest) as refused:
        Sandbox.create(client=client, pool="gpus", gpu_type="L4")
    assert refused.value.field == "gpu_type"
    kept = pools.set("gpus", size=0)
    assert (kept.gpu_count, kept.gpu_type) == (1, "H100")
    assert pools.set("gpus", gpu_type="").gpu_type is None
    none = pools.set("gpus", gpu_count=0)
    assert (none.gpu_count, none.gpu_type) == (0, None)
    pools.delete("gpus")


def test_the_command_line_asks_for_gpus(stack: Stack, tmp_path: Path) -> None:
    def cli(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "sandlot", *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
            env=environment(stack.url, stack.api_key, tmp_path),
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert cli("run", "--gpu-count", "1", "--gpu-type", "H100", "host", "--", "nvidia-smi") == "smi: 0\n"
    said = json.loads(
        cli("pools", "set", "gpus", "--size", "0", "--gpu-count", "1", "--gpu-type", "h100", "--json")
    )
    assert (said["gpu_count"], said["gpu_type"]) == (1, "h100")
    assert "1 h100" in cli("pools", "ls")
    assert cli("run", "--pool", "gpus", "host", "--", "nvidia-smi") == "smi: 0\n"


def test_a_create_that_waits_for_a_gpu_says_so(client: Client, stack: Stack) -> None:
    def pending(box: Sandbox) -> str:
        url = f"{stack.url}/api/v1/sandbox/{box.id}"
        request = Request(url, headers={"Authorization": f"Bearer {stack.api_key}"})
        with urlopen(request) as answer:
            return json.load(answer)["pendingMessage"] or ""

    with (
        Sandbox.create(client=client, gpu_count=1),
        Sandbox.create(client=client, gpu_count=1, wait=0) as waiting,
    ):
        wait_until(lambda: "0 of this machine's 1 such GPUs are free" in pending(waiting))
