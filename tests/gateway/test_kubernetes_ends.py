"""How sandboxes end on Kubernetes: which verdict counts, and which sandbox the end of a pod belongs to."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from sandlot_gateway.core.backend import Unavailable
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.core.slot import ReportOutcome
from sandlot_gateway.sidecars import ClaimAnswer
from sandlot_kube import paths

from tests.gateway.kubernetes_world import NEEDS_API_SERVER, TEMPLATE, World
from tests.waiting import loop_turns, until

pytestmark = NEEDS_API_SERVER


async def test_the_controllers_verdict_is_the_sandboxs(world: World) -> None:
    kubelet = world.kubelet
    async with world.gateway() as gateway:
        instance = await kubelet.pod(TEMPLATE, pool="default")
        await gateway.warm()
        made = await gateway.made()
        await kubelet.until(lambda: made["id"] in kubelet.sandboxes)
        await kubelet.set_status(instance, phase="Failed", reason="Evicted", message="low on memory")
        await kubelet.set_sandbox_status(
            made["id"], phase="Ended", verdict="oom", message="killed by the kernel", exitCode=137
        )
        ended = await gateway.is_ended(made["id"])
        assert (ended["status"], ended["errorType"]) == ("ERROR", "OOM_KILLED")
        assert (await kubelet.record(made["id"])).status.verdict == "oom"


@pytest.mark.parametrize("cold", [False, True])
async def test_a_sandbox_resource_that_is_deleted_ends_its_sandbox_and_stays_away(
    world: World, cold: bool
) -> None:
    kubelet = world.kubelet
    async with world.gateway() as gateway:
        if not cold:
            await kubelet.pod(TEMPLATE, pool="default")
            await gateway.warm()
        made = await gateway.made()
        [(name, _)] = await kubelet.until(
            lambda: [item for item in kubelet.sandboxes.items() if item[1].spec.belongs_to == made["id"]]
        )
        await kubelet.client.request("DELETE", paths.sandboxes(world.namespace, name))
        ended = await gateway.is_ended(made["id"])
        assert (ended["status"], ended["verdict"]) == ("TERMINATED", "deleted")
        await until(lambda: not kubelet.sidecars)
        await gateway.gateway.backend._records.flush(timeout=60)
        assert not world.server.call("GET", paths.sandboxes(world.namespace))["items"]


async def test_a_gateway_that_heard_a_claim_does_not_bring_back_its_deleted_resource(world: World) -> None:
    kubelet = world.kubelet
    async with world.gateway("heard") as heard, world.gateway("made") as gateway:
        assert kubelet.webhook == heard.webhook
        await kubelet.pod(TEMPLATE, pool="default")
        await gateway.warm()
        made = await gateway.made()
        await until(lambda: heard.gateway.directory.get(made["id"]) is not None)
        await kubelet.until(lambda: made["id"] in kubelet.sandboxes)
        await kubelet.client.request("DELETE", paths.sandboxes(world.namespace, made["id"]))
        for each in (heard, gateway):
            ended = await each.is_ended(made["id"])
            assert (ended["status"], ended["verdict"]) == ("TERMINATED", "deleted")
            await each.gateway.backend._records.flush(timeout=60)
        assert not world.server.call("GET", paths.sandboxes(world.namespace))["items"]


async def test_a_sandbox_resource_that_is_deleted_while_no_controller_runs_ends_its_sidecar(
    world: World,
) -> None:
    kubelet = world.kubelet
    kubelet.controls = False
    kubelet.webhook = None  # a heartbeat's answer would end it as well, later
    async with world.gateway() as gateway:
        pod = await kubelet.pod(TEMPLATE, pool="default")
        await gateway.warm()
        made = await gateway.made()
        record = await kubelet.until(lambda: kubelet.of_pod(pod))
        await kubelet.client.request("DELETE", paths.sandboxes(world.namespace, record.metadata.name))
        assert (await gateway.is_ended(made["id"]))["verdict"] == "deleted"
        async with asyncio.timeout(30):
            assert await kubelet.sidecars[pod].wait() == 0


async def test_what_another_gateway_has_claimed_is_not_ended_by_one_that_never_heard_of_the_claim(
    world: World,
) -> None:
    kubelet = world.kubelet
    async with world.gateway("a") as one, world.gateway("b") as other:
        kubelet.webhook = None
        pod = await kubelet.pod(TEMPLATE, pool="default")
        await one.warm()
        await other.warm()
        sidecar = kubelet.sidecars[pod]
        made = await one.made()
        # Before the other gateway can ask it whose it is now.
        with sidecar.stopped():
            await kubelet.until(lambda: made["id"] in kubelet.sandboxes)
            answer = await other.client.post(
                other.webhook, **sidecar.word("ended", phase="ended", verdict="deadline")
            )
            assert answer.status_code == 200, answer.text
            await until(lambda: other.gateway.backend.instance(pod) is None)
            await other.gateway.backend._records.flush(timeout=60)
        assert (await one.client.delete(f"/api/v1/sandbox/{made['id']}")).status_code == 200
        assert await kubelet.until(lambda: kubelet.sandboxes[made["id"]].status.verdict) == "deleted"
        assert (await other.is_ended_somehow(made["id"]))["verdict"] == "deleted"


async def test_what_is_claimed_while_a_slow_sidecar_is_asked_to_end_is_not_given_up(world: World) -> None:
    """A start that is overdue comes up in that moment: the end that was asked for must not be its new owner's."""
    kubelet = world.kubelet
    async with world.gateway() as gateway:
        pod = await kubelet.pod(TEMPLATE, pool="default")
        await gateway.warm()
        made = await gateway.made()
        backend, sidecar = gateway.gateway.backend, kubelet.sidecars[pod]
        slots, instance = gateway.gateway.supply.slots, backend.instance(pod)
        assert slots.discard(pod)
        slots.gone(pod)
        with sidecar.stopped():
            giving_up = asyncio.create_task(backend.destroy(pod))
            await loop_turns()
            assert slots.report_owned(instance, 1, made["id"]) is ReportOutcome.NEWS
            await asyncio.wait_for(giving_up, 60)
        await backend._records.flush(timeout=60)
        told = (await gateway.client.get(f"/api/v1/sandbox/{made['id']}")).json()
        assert (told["status"], told.get("verdict")) == ("RUNNING", None), told
        assert (await kubelet.record(made["id"])).status.verdict is None


async def test_what_comes_up_while_it_is_asked_to_end_in_vain_stays_on_offer(world: World) -> None:
    """Whoever is offered it may have sent a claim that is not answered yet."""
    kubelet = world.kubelet
    async with world.gateway() as gateway:
        pod = await kubelet.pod(TEMPLATE, pool="default")
        await gateway.warm()
        backend, sidecar = gateway.gateway.backend, kubelet.sidecars[pod]
        instance = backend.instance(pod)
        assert instance is not None
        assert gateway.gateway.supply.shed("default") == pod  # as of one that is still on its way
        with socket.create_server(("127.0.0.1", 0)) as silent:
            instance.address = f"127.0.0.1:{silent.getsockname()[1]}"
            giving_up = asyncio.create_task(backend.destroy(pod))
            await loop_turns()
            word = sidecar.word("ready", phase="warm", address=sidecar.config["listen"])
            told = await gateway.client.post(gateway.webhook, **word)
            assert told.status_code == 200, told.text
            await asyncio.wait_for(giving_up, 60)
        made = await gateway.made()
        assert gateway.gateway.supply.slots.owner(pod) == made["id"]
        await backend._records.flush(timeout=60)
        assert (await kubelet.record(made["id"])).status.verdict is None


async def test_a_pod_whose_end_nobody_explains_is_lost_all_the_same(world: World) -> None:
    kubelet = world.kubelet
    async with world.gateway(backend={"verdict_wait": 0.3}) as gateway:
        kubelet.webhook = None
        instance = await kubelet.pod(TEMPLATE, pool="default")
        await gateway.warm()
        made = await gateway.made()
        await kubelet.until(lambda: made["id"] in kubelet.sandboxes)
        await kubelet.set_status(instance, phase="Failed", reason="Evicted", message="low on memory")
        ended = await gateway.is_ended(made["id"])
        assert (ended["status"], ended["errorType"]) == ("ERROR", "EVICTED")
        told = await kubelet.until(lambda: kubelet.sandboxes[made["id"]].status.verdict)
        assert told == "evicted"


async def test_the_end_of_a_pod_brings_back_no_sandbox_resource_that_was_removed(world: World) -> None:
    """As after a retention that is shorter than the pod takes to end."""
    kubelet = world.kubelet
    kubelet.controls = False
    async with world.gateway(backend={"verdict_wait": 0.2}) as gateway:
        instance = await kubelet.pod(TEMPLATE, pool="default")
        await gateway.warm()
        made = await gateway.made()
        await kubelet.until(lambda: made["id"] in kubelet.sandboxes)
        await gateway.client.delete(f"/api/v1/sandbox/{made['id']}")
        await kubelet.until(lambda: kubelet.sandboxes[made["id"]].status.verdict)
        world.server.call("DELETE", paths.sandboxes(world.namespace, made["id"]))
        await kubelet.until(lambda: not kubelet.sandboxes)
        await kubelet.delete_pod(instance)
        await until(lambda: not gateway.gateway.backend.stats()["instances"])
    # The gateway has written what it wanted to write.
    assert world.server.call("GET", paths.sandboxes(world.namespace))["items"] == []


@pytest.mark.parametrize("promised", [False, True])
async def test_the_end_of_a_claim_that_is_given_back_is_not_the_sandboxs(
    world: World, monkeypatch: pytest.MonkeyPatch, promised: bool
) -> None:
    """The pod of the lost claim stood in the sandbox's record, with its end; the one in use had none."""
    kubelet = world.kubelet
    async with world.gateway("a") as a, world.gateway("b") as b:
        first = await kubelet.pod(TEMPLATE, pool="default")
        await a.warm(1)
        accepted, lose = asyncio.Event(), asyncio.Event()
        claim = a.gateway.sidecars.claim

        async def claim_and_lose(instance: Instance, body: dict[str, Any]) -> ClaimAnswer:
            answer = await claim(instance, body)
            if instance.id != first:
                return answer
            accepted.set()
            await lose.wait()
            return ClaimAnswer("uncertain", {})

        async def no_room(*_: Any, **__: Any) -> Instance:
            raise Unavailable("no room", retry_after=60.0)

        monkeypatch.setattr(a.gateway.sidecars, "claim", claim_and_lose)
        monkeypatch.setattr(a.gateway.backend, "launch", no_room)
        creating = asyncio.create_task(a.create(wait_seconds=0 if promised else 25))
        await asyncio.wait_for(accepted.wait(), 60)
        [sandbox] = a.gateway.directory.live()
        await until(lambda: b.gateway.directory.get(sandbox.id))
        lose.set()
        assert await asyncio.wait_for(kubelet.sidecars[first].wait(), 60) == 0
        second = await kubelet.pod(TEMPLATE, pool="default")
        assert (await creating).json()["id"] == sandbox.id
        await until(lambda: sandbox.status == "RUNNING")
        record = await kubelet.until(lambda: kubelet.of_pod(second))
        assert (record.spec.sandbox_id, record.status.verdict) == (sandbox.id, None)
        assert kubelet.of_pod(first) is None
        seen = await until(lambda: b.gateway.directory.get(sandbox.id))
        await until(lambda: (seen.status, seen.instance_id) == ("RUNNING", second))
