"""Gateways, sidecars, sandboxes and controllers are killed; each ends as docs/failures.md promises."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from sandlot import AsyncClient, AsyncSandbox, Client, SandboxLost

from tests.kubernetes.boxes import POOLED, filled, pod_of, pods_exec, resource_of, until, warm
from tests.kubernetes.killing import (
    SOON,
    Lease,
    ended,
    evict,
    held_lease,
    is_ready,
    kill,
    own_cluster_only,
    pods,
    running_requests,
    sandbox_pods,
    warm_everywhere,
    whole,
    whole_again,
)
from tests.kubernetes.pools import REPLACED, own_pool
from tests.kubernetes.stack import IMAGE, POOL, Stack

runc = pytest.mark.parametrize("stack", ["runc"], indirect=True)
gvisor = pytest.mark.parametrize("stack", ["gvisor"], indirect=True)
COMMANDS = 8


@pytest.fixture(autouse=True)
def own_cluster() -> None:
    own_cluster_only()


@pytest.fixture
def gateways(stack: Stack) -> Iterator[list[dict]]:
    whole(stack, "gateway")
    yield pods(stack, "gateway")
    whole(stack, "gateway")


@runc
@pytest.mark.parametrize("dead", ["one", "both"])
async def test_commands_outlive_their_gateways_and_ran_once(
    stack: Stack, gateways: list[dict], dead: str
) -> None:
    async with AsyncClient(url=stack.url, api_key=stack.api_key) as client:
        await asyncio.to_thread(filled, stack, size=POOL)
        box = await AsyncSandbox.create(IMAGE, client=client, **POOLED, labels=["kept"], wait=180)
        try:
            calls = [
                asyncio.create_task(
                    box.exec(
                        f"echo {number} >> /tmp/count; until [ -e /tmp/go ]; do sleep 0.2; done; echo {number}",
                        timeout=200,
                        op_id=f"op-{number}",
                    )
                )
                for number in range(COMMANDS)
            ]
            all_begun = f"until [ $(cat /tmp/count | wc -l) -eq {COMMANDS} ]; do sleep 0.1; done"
            assert (await box.exec(all_begun, timeout=120)).exit_code == 0
            busy = [await asyncio.to_thread(running_requests, stack, one) for one in gateways]
            victims = gateways if dead == "both" else [gateways[busy.index(max(busy))]]
            assert max(busy) >= COMMANDS / 2
            for victim in victims:
                await asyncio.to_thread(kill, stack.namespace, victim["metadata"]["name"], "gateway")
            assert (await box.exec("touch /tmp/go", timeout=100)).exit_code == 0
            results = await asyncio.gather(*calls)
            assert [result.stdout for result in results] == [f"{number}\n" for number in range(COMMANDS)]
            counted = (await box.exec("sort -n /tmp/count", timeout=60)).stdout.split()
            assert counted == [str(number) for number in range(COMMANDS)]
            # Whoever answers now knows the sandbox and the pool.
            assert [found.id for found in await AsyncSandbox.list(labels=["kept"], client=client)] == [box.id]
            async with await AsyncSandbox.create(IMAGE, client=client, **POOLED, wait=180) as another:
                assert another.info.pool_hit is True
        finally:
            await box.delete()
    for victim in victims:
        await asyncio.to_thread(whole_again, stack, "gateway", killed=victim)


def test_a_killed_sidecar_is_a_loss_in_mid_command_too(stack: Stack, client: Client) -> None:
    box = warm(client)
    pod = pod_of(stack, box)["metadata"]["name"]
    raised: list[SandboxLost] = []

    def call() -> None:
        with pytest.raises(SandboxLost) as caught:
            box.exec("touch /tmp/began; sleep 100", timeout=120)
        raised.append(caught.value)

    caller = threading.Thread(target=call)
    caller.start()
    try:
        assert box.exec("until [ -e /tmp/began ]; do sleep 0.1; done", timeout=60).exit_code == 0
        kill(stack.sandboxes, pod, "sidecar")
        assert ended(stack, box, pod=pod) == "sidecar_lost"
    finally:
        caller.join(timeout=150)
    assert [error.verdict for error in raised] == ["sidecar_lost"]


def test_a_killed_main_process_is_a_lost_sandbox(stack: Stack, client: Client) -> None:
    box = warm(client)
    pod = pod_of(stack, box)["metadata"]["name"]
    kill(stack.sandboxes, pod, "sandbox")
    assert ended(stack, box, pod=pod) == "sandbox_lost"
    with pytest.raises(SandboxLost) as caught:
        box.exec("true", timeout=60)
    assert caught.value.verdict == "sandbox_lost"


# Memory that is nobody's resident set, and the main process as the one that is worth most to kill: by itself the
# kernel would choose whoever eats. Under gVisor all of the sandbox is one process to it.
EAT = """
import contextlib, glob, os
for path in glob.glob("/proc/[0-9]*/cmdline"):
    if open(path, "rb").read().startswith(b"/.sandlot/holder"):
        open(path.replace("cmdline", "oom_score_adj"), "w").write("1000")
with contextlib.suppress(PermissionError):
    open("/proc/self/oom_score_adj", "w").write("0")
held = os.memfd_create("held")
while True:
    os.write(held, os.urandom(1 << 20))
"""


def test_a_container_out_of_memory_is_told_as_such(stack: Stack, client: Client) -> None:
    """Not by a command, of which the sidecar takes care."""
    box = warm(client)
    pod = pod_of(stack, box)["metadata"]["name"]
    with pytest.raises(AssertionError):  # it does not live to tell
        pods_exec(stack, pod, ["python3", "-c", EAT])
    assert ended(stack, box, pod=pod) == "oom"


@gvisor
def test_an_evicted_pod_is_told_as_such(stack: Stack, client: Client) -> None:
    box = warm(client)
    pod = pod_of(stack, box)["metadata"]["name"]
    evict(stack, pod)
    assert ended(stack, box, pod=pod) == "evicted"


@gvisor
def test_a_warm_sandbox_that_dies_is_replaced(stack: Stack, client: Client) -> None:
    filled(stack, size=POOL)
    # Not one of an earlier test, which is on its way out or soon will be.
    there = [pod["metadata"] for pod in sandbox_pods(stack).values() if is_ready(pod)]
    of_the_pool = [each for each in there if each["labels"].get("sandlot.dev/pool") == "default"]
    victim = min(each["name"] for each in of_the_pool if "deletionTimestamp" not in each)
    kill(stack.sandboxes, victim, "sidecar")
    until(lambda: victim not in sandbox_pods(stack), seconds=SOON)
    filled(stack, size=POOL)
    warm_everywhere(stack, size=1)
    with warm(client) as box:
        assert box.info.pool_hit is True
        assert box.exec("echo whole", timeout=60).stdout == "whole\n"


@runc
def test_a_controller_that_leads_is_followed_by_another(stack: Stack, client: Client) -> None:
    whole(stack, "controller")
    filled(stack, size=POOL)
    warm_everywhere(stack, size=1)
    first = until(lambda: held_lease(stack))
    assert first is not None
    kill(stack.namespace, first.pod, "controller")
    last = until(lambda: held_lease(stack))
    assert last is not None
    with warm(client) as box:  # claims need no controller
        assert box.info.pool_hit is True

        def followed() -> Lease | None:
            lease = held_lease(stack)
            # The next may be the one that was started again in the same pod.
            return lease if lease is not None and lease.holder != first.holder else None

        following = until(followed, seconds=SOON)
        assert following is not None
        # 15 s of the Lease, an eighth of them between two looks, and some for the writes.
        assert (following.acquired - last.renewed).total_seconds() < 30
        filled(stack, size=POOL)
        assert box.exec("echo kept", timeout=60).stdout == "kept\n"
    whole(stack, "controller")


@gvisor
def test_a_sandbox_deleted_while_no_controller_runs_takes_its_pod_along(stack: Stack, client: Client) -> None:
    (deployment,) = stack.get(
        "deployments", "-n", stack.namespace, "-l", "app.kubernetes.io/component=controller"
    )["items"]
    name = f"deployment/{deployment['metadata']['name']}"
    with own_pool(stack, "replaced", size=1, reuse=REPLACED) as pool:
        box = pool.create(client)
        pod = pod_of(stack, box)["metadata"]["name"]
        assert pod in pool.pods()
        stack.kubectl("scale", name, "-n", stack.namespace, "--replicas=0")
        try:
            until(lambda: not pods(stack, "controller"))
            resource = resource_of(stack, box)["metadata"]["name"]
            stack.kubectl("delete", "sandboxes.sandlot.dev", resource, "-n", stack.sandboxes)
            assert until(lambda: box.refresh().verdict, seconds=SOON) == "deleted"
        finally:
            stack.kubectl("scale", name, "-n", stack.namespace, "--replicas=2")
        until(lambda: pod not in sandbox_pods(stack), seconds=180)
    whole(stack, "controller")


@gvisor
def test_a_sandbox_whose_pod_is_deleted_is_a_loss_of_the_infrastructure(stack: Stack, client: Client) -> None:
    box = warm(client)
    pod = pod_of(stack, box)["metadata"]["name"]
    stack.kubectl("delete", "pod", pod, "-n", stack.sandboxes, "--grace-period=0", "--force")
    assert ended(stack, box, pod=pod) == "evicted"
