"""What held for a former owner holds no more: limits, also of a claim that failed, and connections through its policy."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.cable import cable, running
from tests.executor.container import NEEDS_RUNC, Container
from tests.policies import skip_without_egress_policies
from tests.sidecar.calls import has_output, pass_on
from tests.sidecar.pod_sidecar import PodSidecar
from tests.sidecar.processes import links_of
from tests.sidecar.support import Sidecar
from tests.waiting import until

pytestmark = pytest.mark.root


async def test_a_claim_that_failed_leaves_no_limits(make) -> None:
    """Its limits are in force before its egress policy is refused, which nothing can hold here."""
    box = await make(cgroup_parent=None)
    policy = {"policy": {"allowlist": []}, "allow": True, "rules": []}
    body = box.claim_body(limits={"pids": 17}, egress=policy)
    refused = await box.instance("POST", "/v1/claim", json=body)
    assert (refused.status_code, refused.json()["field"]) == (400, "egress"), refused.text
    await box.claim()
    assert (await box.exec("ulimit -u", shell="bash"))["stdout"] == "256\n"


@pytest_asyncio.fixture
async def pod() -> AsyncIterator[PodSidecar]:
    """A sidecar beside a container; what its sandbox writes is on a volume."""
    container = Container()
    box = PodSidecar(container)
    try:
        await asyncio.to_thread(container.start)
        await box.start()
        yield box
    finally:
        try:
            await box.close()
        finally:
            await asyncio.to_thread(container.close)


@NEEDS_RUNC
async def test_a_smaller_disk_of_an_owner_does_not_bound_the_next(pod: PodSidecar) -> None:
    """Where use is measured, the last measurement holds for files that are written between two."""
    await pod.claim(limits={"disk": 1 << 20})
    await until(lambda: refused_as_full(pod))
    await pass_on(pod, limits={"disk": 64 << 20})
    answer = await pod.call("PUT", "/v1/files?path=/work/big", content=bytes(2 << 20))
    assert answer.status_code == 200, answer.text


async def refused_as_full(box: Sidecar) -> bool:
    await box.exec("sleep 0.5")
    return (await box.call("PUT", "/v1/files?path=/work/big", content=bytes(2 << 20))).status_code == 507


STUBBORN = """
mkdir -p /root/closed/inside; echo x > /root/closed/inside/file; ln -s / /root/closed/link; chown -R 77:77 /root/closed; chmod 0 /root/closed
cd /root; for number in $(seq 300); do mkdir $(printf %0200d $number); cd $(printf %0200d $number); done; echo x > left
dd if=/dev/zero of=/root/big bs=1M count=8; mkfifo /root/pipe; cp /bin/sh /root/suid; chmod 6755 /root/suid
"""


@NEEDS_RUNC
async def test_files_of_an_owner_are_deleted_from_the_volume(pod: PodSidecar) -> None:
    await pod.claim()
    planted = await pod.exec(STUBBORN, shell="sh")
    assert planted["exit_code"] == 0, planted
    volume = f"{pod.config['state_dir']}/upper"
    before = set(os.listdir(volume))
    await pass_on(pod)
    # Beside the new owner's part there may be the one of the next generation, which is prepared.
    await until(lambda: len([name for name in os.listdir(volume) if not name.startswith("next-")]) == 1)
    assert before.isdisjoint(os.listdir(volume))
    assert (await pod.exec("ls -A /root"))["stdout"] == ""


# Answers, and keeps connections open for as long as it lives.
HOLD = r"""
import socket, sys, threading
held = []
def serve(server):
    while True:
        held.append(server.accept()[0])
        held[-1].recv(9999)
        held[-1].sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhttp")
threading.Thread(target=serve, args=(socket.create_server((sys.argv[1], 80)),), daemon=True).start()
print("up", flush=True); input()
"""
CONNECT = r"""
import socket, sys, time
held = [socket.create_connection((sys.argv[1], 80), 10) for _ in range(5)]
for each in held:
    each.sendall(b"GET / HTTP/1.1\r\nHost: " + sys.argv[1].encode() + b"\r\n\r\n")
    assert each.recv(9999).endswith(b"http")
print("held", flush=True)
if sys.argv[2:]: time.sleep(600)
"""


@pytest.mark.parametrize("keep", [True, False])
async def test_connections_through_the_proxy_end_with_their_processes(make, keep: bool) -> None:
    """The other end may keep one open for hours, and the proxy has room for 256."""
    skip_without_egress_policies()
    with cable("p", network=18) as net, running(HOLD, net.inside, namespace=net.namespace):
        box = await make(claim={})
        policy = {"policy": {"denylist": []}, "allow": False, "rules": [["other.test", 0]]}
        assert (await box.instance("PUT", "/v1/egress", json=policy)).status_code == 200
        await box.op(["python3", "-c", CONNECT, net.inside, "stay"], id="holds", detach=True)
        await until(lambda: has_output(box, "holds", "held\n"))
        assert established(box, net.inside) == 5
        answer = await box.instance("POST", "/v1/reset", json={"keep_claim": keep})
        assert answer.json()["equal"] is True, answer.text
        await until(lambda: no_connection(box, net.inside))
        if keep:
            assert (await box.exec(["python3", "-c", CONNECT, net.inside]))["stdout"] == "held\n"


def established(box: Sidecar, address: str) -> int:
    """Connections of the sidecar's own process to port 80 of this address."""
    number = "".join(f"{int(part):02X}" for part in reversed(address.split(".")))
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    there = {fields[9] for fields in lines if fields[2] == f"{number}:0050"}
    links = links_of(box.pid)
    return sum(f"socket:[{inode}]" in links for inode in there)


async def no_connection(box: Sidecar, address: str) -> bool:
    return established(box, address) == 0
