"""GPUs that a kubelet gives out: from a pool's template and a create to a device that the sandbox can open."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from sandlot import Accounting, Client, Pools, Sandbox, SandlotError

from tests.kubernetes.boxes import pod_of
from tests.kubernetes.fake_gpus import DEVICES, MODEL, RESOURCE, fake_gpus_on
from tests.kubernetes.killing import own_cluster_only
from tests.kubernetes.lazy_nodes import worker
from tests.kubernetes.releases import SMALL, release_of_its_own
from tests.kubernetes.stack import IMAGE, Stack

QUOTAS = {"*": {"gpus": len(DEVICES) + 1}}
GPU = {"cpu": 0.2, "memory": 128 << 20, "disk": 128 << 20}


@pytest.fixture(scope="module")
def release() -> Iterator[Stack]:
    own_cluster_only()
    with release_of_its_own("gpus", runtime="runc") as stack, fake_gpus_on(stack, worker()):
        stack.install(*SMALL, "--set-json", f"gateway.quotas={json.dumps(QUOTAS)}")
        yield stack


@pytest.fixture(scope="module")
def caller(release: Stack) -> Iterator[Client]:
    with Client(url=release.url, api_key=release.api_key) as made:
        yield made


def test_explore(release: Stack, caller: Client) -> None:
    import time; release.kubectl("version")
    pools = Pools(client=caller)
    t = time.time()
    pools.set("gpus", size=1, image=IMAGE, gpu_count=1, gpu_type=MODEL, **GPU)
    pools.wait_warm("gpus", timeout=180)
    print("warm", time.time() - t)
    box = Sandbox.create(IMAGE, client=caller, gpu_count=1, gpu_type=MODEL, **GPU, run="gpu-run", wait=120)
    print(box.info)
    for command in ("ls -la /dev", "env", "nvidia-smi; /usr/local/nvidia/bin/nvidia-smi", "cat /proc/self/cgroup", "cat /proc/self/mountinfo",
        "for each in /dev/nvidia*; do exec 3<>$each && echo opened $each; done", "mknod /tmp/x c 10 229; mknod /tmp/y c 10 237; mknod /tmp/z c 10 200; cat /tmp/x /tmp/y /tmp/z"):
        out = box.exec(command, timeout=60)
        print("$", command, out.exit_code if hasattr(out, "exit_code") else "", out.stdout, out.stderr)
    pod = pod_of(release, box)
    print(json.dumps(pod["spec"]["containers"][0]["resources"]), pod["spec"].get("nodeSelector"))
    try:
        bad = Sandbox.create(IMAGE, client=caller, gpu_count=1, gpu_type="NVIDIA H100 80GB", **GPU, wait=0)
        time.sleep(5)
        print("bad", bad.refresh(), caller.call("GET", f"/sandbox/{bad.id}", safe=True))
        bad.delete()
    except Exception as error:
        print("bad error", repr(error))
    try:
        three = Sandbox.create(IMAGE, client=caller, gpu_count=2, **GPU, wait=120)
        print(three.exec("ls /dev; env | grep NV").stdout)
        t = time.time()
        fifth = Sandbox.create(IMAGE, client=caller, gpu_count=1, **GPU, wait=0)
        for _ in range(6):
            time.sleep(3)
            print(time.time() - t, caller.call("GET", f"/sandbox/{fifth.id}", safe=True))
        print(release.kubectl("get", "pods,sandboxes,sandboxpools", "-n", release.sandboxes, "-o", "wide"))
        print(release.kubectl("get", "events", "-n", release.sandboxes))
        try:
            Sandbox.create(IMAGE, client=caller, gpu_count=1, **GPU, wait=0)
        except SandlotError as error:
            print("quota", repr(error))
        print(Accounting(client=caller).usage(group_by=["run"]))
    finally:
        print(release.report()[-6000:])
