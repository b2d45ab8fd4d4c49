"""GPUs that a kubelet assigns: from chart, pools, SDK and command line to devices that a sandbox's commands can open."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandlot import Accounting, BadRequest, Client, Pools, Sandbox, UsageRow

from tests.cli.conftest import command_line
from tests.kubernetes.boxes import pod_name, until
from tests.kubernetes.fake_gpus import DEVICES, DRIVEN_MODEL, MODEL, driver_on, plugin_on
from tests.kubernetes.killing import own_cluster_only
from tests.kubernetes.lazy_nodes import worker
from tests.kubernetes.releases import release_of_its_own
from tests.kubernetes.stack import IMAGE, Stack

SIZE = {"cpu": 0.2, "memory": 128 << 20, "disk": 128 << 20}
OPEN = 'cd /dev; for each in nvidia*; do exec 3<>"$each" && echo "$each"; done'
SMI = "/usr/local/nvidia/bin/nvidia-smi"
QUOTA = len(DEVICES) + 1


def used(client: Client, *, run: str) -> list[UsageRow]:
    """What sandboxes of a run have used, once that is more than nothing."""
    rows = Accounting(client=client).usage(group_by=["run"]).rows
    return [row for row in rows if row.run == run and row.gpu_seconds]


@pytest.fixture(scope="module")
def release() -> Iterator[Stack]:
    """With a pool under gVisor, which has one GPU, of the node's four."""
    own_cluster_only()
    template = {"image": IMAGE, **SIZE, "gpuCount": 1, "gpuType": MODEL, "runtimeClass": "gvisor"}
    values = {
        "pools": {"gvisor": {"size": 1, "template": template}},
        "gateway.replicas": 1,
        "gateway.quotas": {"*": {"gpus": QUOTA}},
        "controller.replicas": 1,
    }
    with release_of_its_own("gpus", runtime="runc") as stack, plugin_on(stack, worker()):
        stack.install("--set-json", ",".join(f"{name}={json.dumps(value)}" for name, value in values.items()))
        yield stack


@pytest.fixture(scope="module")
def caller(release: Stack) -> Iterator[Client]:
    with Client(url=release.url, api_key=release.api_key) as made:
        yield made


def test_a_sandbox_has_the_gpu_of_its_pod_and_a_reset_ends_what_used_it(
    release: Stack, caller: Client
) -> None:
    pools = Pools(client=caller)
    pools.set("gpus", size=1, image=IMAGE, gpu_count=1, gpu_type=MODEL, **SIZE)
    pools.wait_warm("gpus", timeout=180)
    pools.wait_warm("gvisor", timeout=180)
    with Sandbox.create(pool="gvisor", client=caller) as box:
        device = box.exec("ls /dev | grep nvidia", timeout=60).stdout
        assert device.strip() in DEVICES
        assert box.exec(SMI, timeout=60).stdout == f"smi: {device}"
    with Sandbox.create(IMAGE, client=caller, gpu_count=1, gpu_type=MODEL, **SIZE) as box:
        assert box.info.pool_hit
        pod = pod_name(box)
        assert release.get("pod", pod, "-n", release.sandboxes)["spec"]["nodeName"] == worker()
        device = box.exec(OPEN, timeout=60).stdout
        assert device.strip() in DEVICES
        assert box.exec(SMI, timeout=60).stdout == f"smi: {device}"
        holds = f"sleep 1000 3<>/dev/{device.strip()} >/dev/null 2>&1 & touch /dev/shm/left; echo $!"
        process = box.exec(holds, timeout=60).stdout.strip()
        assert box.exec(f"readlink /proc/{process}/fd/3", timeout=60).stdout == f"/dev/{device}"
        box.reset()
        left = box.exec("ls /dev/shm; cat /proc/[0-9]*/comm | grep sleep; exit 0", timeout=60)
        assert left.stdout == ""
        assert box.exec(OPEN, timeout=60).stdout == device
    pools.wait_warm("gpus", timeout=180)
    with Sandbox.create(IMAGE, client=caller, gpu_count=1, **SIZE) as box:
        assert pod_name(box) != pod


def test_a_create_waits_while_no_gpu_is_free(release: Stack, caller: Client, tmp_path: Path) -> None:
    for name in ("gpus", "gvisor"):
        Pools(client=caller).delete(name)
    with pytest.raises(BadRequest) as refused:
        Sandbox.create(IMAGE, client=caller, gpu_count=QUOTA + 1, **SIZE)
    assert refused.value.field == "gpu_count"
    run = command_line(release.url, release.api_key, tmp_path)
    size = ("--cpu", "0.2", "--memory", "128MiB", "--disk", "128MiB")
    gpus = ("--gpu-count", str(len(DEVICES)), "--gpu-type", MODEL)
    done = run("run", *gpus, *size, "--run", "all", "--keep", IMAGE, "--", SMI)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.removeprefix("smi: ").strip().split(",")) == DEVICES.keys()
    kept = done.stderr.split("sandlot: kept ")[1].strip()
    with (
        Sandbox.connect(kept, client=caller) as all_of_them,
        Sandbox.create(IMAGE, client=caller, gpu_count=1, **SIZE, wait=0) as fifth,
    ):

        def waits_for() -> str:
            return caller.call("GET", f"/sandbox/{fifth.id}", safe=True)["pendingMessage"] or ""

        until(lambda: "Insufficient nvidia.com/gpu" in waits_for())
        (row,) = until(lambda: used(caller, run="all"))
        assert row.gpu_seconds == pytest.approx(len(DEVICES) * row.sandbox_seconds, abs=0.01)
        all_of_them.delete()
        until(lambda: fifth.refresh().status == "RUNNING")
        assert len(fifth.exec(OPEN, timeout=60).stdout.split()) == 1


def test_devices_of_a_driver_for_dynamic_resource_allocation(release: Stack, caller: Client) -> None:
    """A DeviceClass that names the chart's `gpuResource` is enough: claims are the scheduler's."""
    pools = Pools(client=caller)
    with driver_on(release, worker(1)):
        size = {"gpu_count": 2, "gpu_type": DRIVEN_MODEL, **SIZE}
        pools.set("driven", size=1, image=IMAGE, **size)
        pools.wait_warm("driven", timeout=180)
        with Sandbox.create(IMAGE, client=caller, **size) as box:
            assert box.info.pool_hit
            pod = release.get("pod", pod_name(box), "-n", release.sandboxes)
            assert pod["spec"]["nodeName"] == worker(1)
            assert "resourceClaims" not in pod["spec"]
            devices = box.exec(OPEN, timeout=60).stdout.split()
            assert len(devices) == 2
            assert set(box.exec(SMI, timeout=60).stdout.removeprefix("smi: ").strip().split(",")) == set(
                devices
            )
            holds = f"sleep 1000 3<>/dev/{devices[0]} >/dev/null 2>&1 & echo $!"
            process = box.exec(holds, timeout=60).stdout.strip()
            assert box.exec(f"readlink /proc/{process}/fd/3", timeout=60).stdout == f"/dev/{devices[0]}\n"
            box.reset()
            assert box.exec("cat /proc/[0-9]*/comm | grep sleep; exit 0", timeout=60).stdout == ""
            assert box.exec(OPEN, timeout=60).stdout.split() == devices
            # The pool's next one has the other two, and then there are none.
            pools.wait_warm("driven", timeout=180)
            pools.set("driven", size=0, image=IMAGE, **size)
            until(lambda: _claims(release) == 1)
        until(lambda: _claims(release) == 0)
        pools.delete("driven")


def _claims(release: Stack) -> int:
    return len(release.get("resourceclaims", "-n", release.sandboxes)["items"])
